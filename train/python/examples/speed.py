"""Times calls from PyTorch: ten methods against plain PyTorch's forms of them, and a call of 16 tokens.

  python speed.py torch_lra.py [N]

The baseline torch_lra.py has its forms as functions. Both run forward and backward in turn, dropout off, two
threads each; the ratio is the median over the turns of theirs / ours. Prints a table in Markdown.
"""
import importlib.util
import statistics
import sys
import time
import types

import numpy as np
import skytape.torch
import torch

B, H, D, FEATURES = 4, 2, 32, 128
OURS = {"softmax_plain": "softmax", "softmax_sdpa": "softmax"}  # the others have one name


def seconds(call, times):
    """Returns the seconds of each call, one after another."""
    found = []
    for _ in range(times):
        start = time.perf_counter()
        call()
        found.append(time.perf_counter() - start)
    return found


def forward_and_backward(attend, *inputs):
    dout = torch.randn_like(inputs[2])

    def call():
        torch.autograd.grad(attend(*inputs), inputs, dout, allow_unused=True)
    call()  # warm
    return call


def race(form, name, n):
    """(milliseconds of theirs, of ours, and their ratio), medians over turns."""
    q, k, v = (torch.randn(B, H, n, D, requires_grad=True) for _ in range(3))
    mask, projection = (torch.ones(B, n, dtype=torch.bool),
                        torch.linalg.qr(torch.randn(FEATURES, FEATURES))[0][:, :D] * D**0.5)
    state = types.SimpleNamespace(training=False, features=FEATURES,
                                  E=torch.randn(H, FEATURES, n) / 50, proj=projection)
    has = {option["key"] for row in skytape.methods() if row["name"] == name for option in row["options"]}
    options = {"features": FEATURES} if "features" in has else {}
    own, _ = skytape._engine.initial(name, skytape._texts(options), H, D, n, H * D, 0)
    options["parameters"] = {key: torch.tensor(value, dtype=q.dtype) for key, value, _ in own} or None
    theirs = forward_and_backward(lambda *qkv: form(*qkv, mask.to(q.dtype), state), q, k, v)
    ours = forward_and_backward(lambda *qkv: skytape.torch.attention(name, *qkv, mask, **options), q, k, v)
    turns = [(seconds(theirs, 1)[0], seconds(ours, 1)[0]) for _ in range(9)]
    median = statistics.median
    return (*(median(column) * 1e3 for column in zip(*turns)), median(a / b for a, b in turns))


def idle(call, milliseconds=20):
    """Milliseconds of CPU that the process takes in its sleep after a call: what waiting threads spin."""
    found = []
    for _ in range(20):
        call()
        start = time.process_time()
        time.sleep(milliseconds / 1e3)
        found.append(time.process_time() - start)
    return statistics.median(found) * 1e3


def main(peer, n="2048"):
    torch.set_num_threads(2)
    skytape.set_threads(2)
    spec = importlib.util.spec_from_file_location("peer", peer)
    forms = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(forms)
    print(f"PyTorch {torch.__version__}, [{B}, {H}, {n}, {D}], f32, {FEATURES} features, two threads\n")
    print("| method | its PyTorch form, ms | skytape, ms | times as fast |\n|---|---:|---:|---:|")
    for form, attend in forms.METHODS.items():
        theirs, ours, ratio = race(attend, OURS.get(form, form), int(n))
        print(f"| {form} | {theirs:.1f} | {ours:.1f} | {ratio:.1f} |", flush=True)
    few, dout = np.random.default_rng(0).standard_normal((2, 1, 2, 16, 32)).astype(np.float32)
    leaf = torch.tensor(few, requires_grad=True)
    print("\n| a call of 16 tokens, softmax | µs |\n|---|---:|")
    for what, call in {
        "`skytape.attention`, NumPy": lambda: skytape.attention("softmax", few, few, few),
        "`skytape.vjp`, NumPy": lambda: skytape.vjp("softmax", few, few, few, dout),
        "`skytape.torch.attention`, forward and backward": forward_and_backward(
            lambda *qkv: skytape.torch.attention("softmax", *qkv), leaf, leaf, leaf),
        "`scaled_dot_product_attention`, forward and backward": forward_and_backward(
            torch.nn.functional.scaled_dot_product_attention, leaf, leaf, leaf),
    }.items():
        print(f"| {what} | {statistics.median(seconds(call, 2000)) * 1e6:.0f} |", flush=True)
    q = torch.ones(1, 2, 512, 32)
    ours, theirs = idle(lambda: skytape.attention("softmax", q, q, q)), idle(lambda: (q @ q.mT).relu())
    print(f"\nAsleep for 20 ms, the process takes {ours:.2f} ms of CPU after a call, "
          f"{theirs:.2f} after one of PyTorch.")


if __name__ == "__main__":
    main(*sys.argv[1:])
