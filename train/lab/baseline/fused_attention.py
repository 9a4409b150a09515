#!/usr/bin/env python3
"""Times PyTorch's fused attention alone, on a GPU in bf16, to be compared with the kernels that
`bench --kernels` lists of ours.

    fused_attention.py --n 512,2048,8192 --tokens 16384 --heads 12 --width 64

A line for PyTorch's own choice and for each kernel that it has: milliseconds of forward, of both
passes and of backward, and TFLOP/s, of 4 n² width operations a head forward and 10 n² width backward.
"""
import argparse
import statistics

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import scaled_dot_product_attention

KERNELS = {"its choice": None, "flash": SDPBackend.FLASH_ATTENTION,
           "cudnn": SDPBackend.CUDNN_ATTENTION}


def milliseconds(work, rounds=5, in_a_row=10):
    """The median over the rounds of one call's time, many calls in a row."""
    for _ in range(3):
        work()
    times = []
    for _ in range(rounds):
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        begin.record()
        for _ in range(in_a_row):
            work()
        end.record()
        torch.cuda.synchronize()
        times.append(begin.elapsed_time(end) / in_a_row)
    return statistics.median(times)


def time_passes(shape):
    """(ms forward, ms of both passes) on normal q, k, v of shape [B, H, N, D]."""
    q, k, v = (torch.randn(shape, device="cuda", dtype=torch.bfloat16, requires_grad=True)
               for _ in range(3))
    dout = torch.randn_like(q)

    def both():
        torch.autograd.grad(scaled_dot_product_attention(q, k, v), (q, k, v), dout)

    with torch.no_grad():
        forward = milliseconds(lambda: scaled_dot_product_attention(q, k, v))
    return forward, milliseconds(both)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--n", default="512,2048,8192", help="lengths a,b,…")
    parser.add_argument("--tokens", type=int, default=16384, help="of a batch")
    parser.add_argument("--heads", type=int, default=12)
    parser.add_argument("--width", type=int, default=64, help="of a head")
    args = parser.parse_args()
    print(f"{torch.cuda.get_device_name()}, PyTorch {torch.__version__}, {args.heads} heads of "
          f"{args.width}, bf16")
    for n in map(int, args.n.split(",")):
        shape = (args.tokens // n, args.heads, n, args.width)
        flop = 2e-9 * shape[0] * args.heads * n * n * args.width  # of one product, in GFLOP
        for name, kernel in KERNELS.items():
            try:
                with sdpa_kernel(kernel) if kernel else torch.enable_grad():
                    forward, both = time_passes(shape)
            except RuntimeError as error:
                print(f"n={n} {name}: {str(error).splitlines()[0]}", flush=True)
                continue
            print(f"n={n} batch={shape[0]} {name}: forward {forward:.3f} ms "
                  f"({2 * flop / forward:.0f} TFLOP/s), both {both:.3f} ms, backward "
                  f"{both - forward:.3f} ms ({5 * flop / (both - forward):.0f} TFLOP/s)", flush=True)


if __name__ == "__main__":
    main()
