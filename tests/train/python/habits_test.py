"""Habits of PyTorch's users with a layer: each row of the page's table is a test here, under its name."""
import contextlib
import copy
import gc
import io
import itertools
import multiprocessing
import os
import pathlib
import pickle
import re
import shutil
import tempfile
import threading
import unittest
import unittest.mock

import numpy as np

import skytape  # before PyTorch, so that waiting threads leave the cores to others

try:
    import torch
    from torch import nn
    from torch._subclasses import FakeTensorMode
    import skytape.torch
except ImportError:
    raise unittest.SkipTest("no PyTorch here") from None

import encoders_test
from scripts import DDP, LOADER, run_script
from torch_test import METHODS, SOME, WHOLE, cases, fixed, normal

ROOT = pathlib.Path(__file__).parents[3]
B, N, E, HEADS = 3, 48, 16, 2
OPTIONS = {"linformer": {"features": 16}, "skyformer": {"features": 8}, "performer": {"features": 16},
           "luna": {"features": 8}}
FEW = SOME if WHOLE else ("softmax", "skyformer", "linformer", "routing")  # where each takes seconds


def layer(name, seed=5, **more):
    torch.manual_seed(seed)
    options = {key: value for key, value in OPTIONS.get(name, {}).items()
               if any(option["key"] == key for option in skytape.traits.METHODS[name]["options"])}
    return skytape.torch.Attention(name, E, HEADS, length=N, **options, **more)


def inputs(seed=3, dtype=torch.float32, batch=B):
    return normal(batch, N, E, seed=seed, dtype=dtype)


def gradients(module, x, call=None, **more):
    """By name, of the sum of squares. call: the module's, in another way."""
    module.zero_grad()
    x = x.clone().requires_grad_()
    (module if call is None else call)(x, **more).square().sum().backward()
    return {"x": x.grad,
            **{name: p.grad.clone() for name, p in module.named_parameters() if p.grad is not None}}


@contextlib.contextmanager
def new_cache_of_inductor():
    """A graph that an earlier version of the operators left on disk says nothing of this one."""
    with (tempfile.TemporaryDirectory() as folder,
          unittest.mock.patch.dict(os.environ, TORCHINDUCTOR_CACHE_DIR=folder)):
        yield


class Table(unittest.TestCase):
    def test_each_row_of_the_page_has_a_test_here_and_each_test_a_row(self):
        page = (ROOT / "train/python/README.md").read_text(encoding="utf-8")
        for file, cases_of in (("habits", Habits), ("encoders", encoders_test.Encoders)):
            rows = set(re.findall(rf"`{file}_test\.py (\w+)`", page))
            tests = {name.removeprefix("test_") for name in dir(cases_of) if name.startswith("test_")}
            self.assertEqual(rows, tests)


class Habits(unittest.TestCase):
    def assertSame(self, ours, theirs, what="", tolerance=0):
        self.assertEqual(ours.keys(), theirs.keys())
        for key, value in ours.items():
            self.assertLessEqual((value - theirs[key]).abs().max().item(),
                                 tolerance * (1 + value.abs().max().item()), (what, key))

    def test_compile(self):
        for name in FEW:
            for training in (False, True):
                with self.subTest(name, training=training):
                    torch._dynamo.reset()
                    found = []
                    for compiled in (False, True):
                        module = layer(name).train(training)
                        call = (torch.compile(module, fullgraph=True, backend="aot_eager") if compiled
                                else module)
                        torch.manual_seed(7)
                        x = inputs().requires_grad_()
                        out = call(x)
                        out.square().sum().backward()
                        found.append({"out": out, "x": x.grad, **dict(module.named_buffers()),
                                      **{key: p.grad for key, p in module.named_parameters()}})
                    self.assertSame(*({key: value for key, value in each.items() if value is not None}
                                      for each in found))

    def test_compile_reuses_memory(self):
        # The default backend overwrites what backward is not given, and recomputes within a budget of memory.
        self.require_inductor()
        several = ("softmax", "kernelized", "linear_attention", "cosformer", "linformer", "performer", "luna",
                   "skyformer", "local")
        quick = [("softmax", 1.0), ("kernelized", 1.0), ("linear_attention", 1.0), ("cosformer", 0.0),
                 ("linformer", 1.0), ("luna", 0.0)]
        for name, budget in itertools.product(several, (1.0, 0.5, 0.0)) if WHOLE else quick:
            with (self.subTest(name, budget=budget), new_cache_of_inductor(),
                  unittest.mock.patch("torch._functorch.config.activation_memory_budget", budget)):
                torch._dynamo.reset()
                module, x = layer(name).train(budget == 1), inputs()
                found = []
                for call in (module, torch.compile(module, fullgraph=True)):
                    torch.manual_seed(7)
                    found.append(gradients(module, x, call=call))
                self.assertClose(*found)

    def test_compile_checkpoints(self):
        from torch.utils.checkpoint import checkpoint
        self.require_inductor()
        for name in ("softmax", "skyformer", "luna") if WHOLE else ("skyformer",):  # the second draws
            with self.subTest(name), new_cache_of_inductor():
                torch._dynamo.reset()
                module, x, found = layer(name).train(), inputs(), []
                for call in (module, torch.compile(lambda x: checkpoint(module, x, use_reentrant=False),
                                                   fullgraph=True)):
                    torch.manual_seed(7)
                    found.append(gradients(module, x, call=call))
                self.assertClose(*found)

    def require_inductor(self):
        if shutil.which(os.environ.get("CXX", "g++")) is None:
            self.skipTest("no C++ compiler for inductor")

    def assertClose(self, eager, found):
        """To rounding; what is zero but for rounding is held against the largest of the gradients."""
        largest = max(value.norm() for value in eager.values())
        for key, value in eager.items():
            self.assertLess((found[key] - value).norm(), 1e-4 * (value.norm() + 1e-3 * largest), key)

    def test_compile_settings(self):
        q = inputs().unflatten(2, (HEADS, -1)).transpose(1, 2)
        for name, key, values in (("skyformer", "features", (4, 6, 8)),
                                  ("skyformer", "length", (N, N + 5, N + 9)),
                                  ("softmax", "attention_dropout", (0.1, 0.2, 0.4))):
            with self.subTest(name, key=key):
                torch._dynamo.reset()

                def call(q, value):
                    return skytape.torch.attention(name, q, q, q, seed=4, training=True, **{key: value})
                compiled = torch.compile(call, fullgraph=True, backend="aot_eager")
                for value in values:
                    self.assertTrue((compiled(q, value) == call(q, value)).all())

    def test_compile_func_grad(self):
        q = inputs().unflatten(2, (HEADS, -1)).transpose(1, 2)
        for differentiable in (False, True):
            torch._dynamo.reset()
            call = torch.func.grad(lambda v: skytape.torch.attention(
                "softmax", q, q, v, differentiable=differentiable).square().sum())
            expected = call(q)
            self.assertTrue((torch.compile(call, backend="aot_eager")(q) == expected).all())
            torch._dynamo.reset()
            compiled = torch.compile(call, fullgraph=True, backend="aot_eager")
            if differentiable:
                self.assertLess((compiled(q) - expected).abs().max(), 1e-5)
                continue
            with self.assertRaises(torch._dynamo.exc.Unsupported):
                compiled(q)

    def test_is_grads_batched(self):
        module, x = layer("softmax"), inputs().requires_grad_()
        out = module(x)
        with self.assertRaisesRegex(RuntimeError,
                                    "Batching rule not implemented for skytape::softmax_backward"):
            torch.autograd.grad(out, x, torch.stack([out, out]).detach(), is_grads_batched=True)
        with self.assertRaisesRegex(RuntimeError,
                                    "Batching rule not implemented for skytape::softmax_backward"):
            torch.autograd.functional.jacobian(lambda x: module(x).sum((1, 2)), x, vectorize=True)

    def test_compile_two_layers_draw_apart(self):
        model = nn.Sequential(layer("softmax", attention_dropout=0.5),
                              layer("softmax", attention_dropout=0.5))
        model[1].load_state_dict(model[0].state_dict())
        torch._dynamo.reset()

        @torch.compile(fullgraph=True, backend="aot_eager")
        def call(x):
            return model[0](x), model[1](x)
        first, second = call(inputs())
        self.assertGreater((first - second).abs().max(), 1e-3)

    def test_export(self):
        for name in FEW:
            with self.subTest(name):
                module, x = layer(name).eval(), inputs()
                batch = torch.export.Dim("batch", min=1, max=64)
                program = torch.export.export(module, (x,), dynamic_shapes={"x": {0: batch}})
                file = io.BytesIO()
                torch.export.save(program, file)
                file.seek(0)
                again = torch.export.load(file).module()
                for batch in (1, B, 5):
                    x = inputs(7, batch=batch)
                    self.assertTrue((again(x) == module(x)).all())

    def test_aot_inductor(self):
        for name in ("softmax", "linformer"):  # the second has its own parameters
            with self.subTest(name), new_cache_of_inductor(), tempfile.TemporaryDirectory() as folder:
                module, x = layer(name).eval(), inputs()
                program = torch.export.export(module, (x,))
                call, = (node for node in program.graph.nodes if str(node.target).startswith("skytape"))
                self.assertNotIn([], list(call.args))  # AOTInductor gives the operator None instead
                if not WHOLE:
                    continue  # to compile takes a minute
                self.require_inductor()
                package = torch._inductor.aoti_compile_and_package(program,
                                                                   package_path=f"{folder}/layer.pt2")
                self.assertLess((torch._inductor.aoti_load_package(package)(x) - module(x)).abs().max(), 1e-6)

    def test_jit_trace(self):
        for name in FEW:
            with self.subTest(name):
                module, x = layer(name).eval(), inputs()
                file = io.BytesIO()
                torch.jit.save(torch.jit.trace(module, (x,)), file)
                file.seek(0)
                again = torch.jit.load(file)
                for batch in (1, B, 5):
                    self.assertSame(gradients(again, inputs(7, batch=batch)),
                                    gradients(module, inputs(7, batch=batch)))

    def test_make_fx(self):
        from torch.fx.experimental.proxy_tensor import make_fx
        module, x = layer("skyformer").eval(), inputs()

        def step(x):
            return torch.autograd.grad(module(x).square().sum(), x)[0]
        graph = make_fx(step, tracing_mode="real")(x.clone().requires_grad_())
        self.assertTrue((graph(x.clone().requires_grad_()) == gradients(module, x)["x"]).all())
        self.assertIn("skytape.skyformer_backward", str(graph.code))
        many = torch.stack([inputs(seed) for seed in (1, 2, 3)])
        self.assertLess((torch.vmap(graph)(many) - torch.stack([graph(x) for x in many])).abs().max(), 1e-6)

    def test_vmap(self):
        for name in FEW:
            with self.subTest(name):
                module = layer(name).eval()
                many = torch.stack([inputs(seed) for seed in (1, 2, 3, 4)])
                found = torch.vmap(module)(many)
                self.assertLess((found - torch.stack([module(x) for x in many])).abs().max(), 1e-6)

    def test_vmap_randomness(self):
        x = inputs(batch=1).expand(3, 1, N, E)
        for what, call in {
            "module": layer("skyformer"), "dropout": layer("softmax", attention_dropout=0.5),
            "function": lambda x: skytape.torch.attention(
                "performer", x[:, None], x[:, None], x[:, None], training=True),
            "seed": lambda x: skytape.torch.attention(
                "softmax", x[:, None], x[:, None], x[:, None], seed=4, training=True, attention_dropout=0.5),
        }.items():
            with self.subTest(what):
                if what != "seed":
                    with self.assertRaisesRegex(RuntimeError, "randomness"):
                        torch.vmap(call)(x)
                same = torch.vmap(call, randomness="same")(x)
                self.assertTrue((same == same[0]).all())
                apart = torch.vmap(call, randomness="different")(x)
                self.assertEqual((apart[0] == apart[1]).all(), what == "seed")
                torch._dynamo.reset()
                for randomness in ("same", "different"):
                    compiled = torch.compile(torch.vmap(call, randomness=randomness), fullgraph=True,
                                             backend="aot_eager")
                    torch.manual_seed(8)
                    eager = torch.vmap(call, randomness=randomness)(x)
                    torch.manual_seed(8)
                    self.assertTrue((compiled(x) == eager).all())
        self.assertTrue((same[0] == call(x[0])).all())

    def test_per_example_gradients(self):
        from torch.func import functional_call, grad, vmap
        for name in FEW:
            for training in (False, True):
                with self.subTest(name, training=training):
                    module = layer(name, **({"attention_dropout": 0} if name == "softmax" else {}))
                    module.double().train(training)
                    if training and name in ("skyformer", "performer", "routing", "reformer"):
                        continue  # they draw anew, or move, at each call
                    parameters, x = dict(module.named_parameters()), inputs(dtype=torch.float64)

                    def loss(parameters, example):
                        return functional_call(module, parameters, (example[None],)).square().sum()
                    found = vmap(grad(loss), in_dims=(None, 0))(
                        {key: p.detach() for key, p in parameters.items()}, x)
                    for i in range(B):
                        alone = gradients(module, x[i:i + 1])
                        for key in parameters:
                            expected = alone.get(key, torch.zeros_like(parameters[key]))
                            self.assertLess((found[key][i] - expected).abs().max(),
                                            1e-9 * (1 + expected.abs().max()), key)

    def test_jacrev(self):
        from torch.func import jacrev
        for name in ("softmax", "skyformer", "synthesizer"):
            with self.subTest(name):
                module, x = layer(name).double().eval(), inputs(dtype=torch.float64, batch=1)
                found = jacrev(lambda x: module(x)[0, 0])(x)  # [E, 1, N, E]
                leaf = x.clone().requires_grad_()
                out = module(leaf)
                for i in range(E):
                    row, = torch.autograd.grad(out[0, 0, i], leaf, retain_graph=True)
                    self.assertLess((found[i] - row).abs().max(), 1e-10)

    def test_jacrev_in_training_uses_the_draws_of_its_forward(self):
        q, k, v = (normal(2, 2, 32, 4, seed=seed) for seed in (1, 2, 3))

        def f(v):
            return skytape.torch.attention("skyformer", q, k, v, seed=9, training=True, features=8)[1, 0, 3]
        found = torch.func.jacrev(f)(v)
        leaf = v.clone().requires_grad_()
        out = f(leaf)
        for i in range(4):
            row, = torch.autograd.grad(out[i], leaf, retain_graph=True)
            self.assertLess((found[i] - row).abs().max(), 1e-12)

    def test_autocast(self):
        theirs = nn.MultiheadAttention(E, HEADS, batch_first=True)
        for dtype in (torch.bfloat16, torch.float16):
            for name in METHODS:
                with self.subTest(name, dtype=dtype):
                    module, x = layer(name).eval(), inputs()
                    with torch.autocast("cpu", dtype=dtype):
                        out = module(x)
                        self.assertEqual(out.dtype, theirs(x, x, x)[0].dtype)
                    self.assertEqual(gradients(module, x)["x"].dtype, torch.float32)
                    if (not skytape.traits.METHODS[name]["random"]
                            and name not in ("informer", "informer_mask", "routing")):
                        self.assertLess((out.float() - module(x)).norm(), 0.05 * module(x).norm())

    def test_half_precision(self):
        for dtype in (torch.bfloat16, torch.float16):
            for name in METHODS:
                with self.subTest(name, dtype=dtype):
                    module = layer(name).to(dtype)
                    found = gradients(module.eval(), inputs(dtype=dtype))
                    self.assertEqual({value.dtype for value in found.values()}, {dtype})
                    self.assertEqual(module(inputs(dtype=dtype)).dtype, dtype)

    def test_in_place(self):
        for name in METHODS:
            row = skytape.traits.METHODS[name]
            q, k, v = (normal(1, 2, 16, 8, seed=seed).requires_grad_() for seed in (1, 2, 3))
            x = normal(1, 16, 16, seed=4) if row["reads_x"] else None
            for change in ("out.add_(1)", "out.mul_(2)", "out[:, :, 0] = 0", "out.zero_()", "v_.add_(1)"):
                with (self.subTest(name, change=change),
                      self.assertRaisesRegex(RuntimeError, "modified by an inplace operation")):
                    v_ = v * 1
                    out = skytape.torch.attention(name, q, None if row["shared_qk"] else k, v_, x=x)
                    exec(change, {"out": out, "v_": v_})
                    out.square().sum().backward()

    def test_double_backward(self):
        for name, options, arrays, own in cases():
            with self.subTest(name, **options):
                settings = fixed(name, options, arrays, own)
                given = {key: value for key, value in arrays.items()}
                out = skytape.torch.attention(name, **given, parameters=own or None, **settings)
                first, = torch.autograd.grad(out.square().sum(), arrays["v"], create_graph=True)
                with self.assertRaisesRegex(RuntimeError, "first derivatives"):
                    (out.sum() + first.square().sum()).backward()
        module, x = layer("skyformer"), inputs().requires_grad_()
        penalty, = torch.autograd.grad(module(x).sum(), x, create_graph=True)
        with self.assertRaisesRegex(RuntimeError, "first derivatives"):
            penalty.norm().backward()

    def test_second_derivatives(self):
        for name in FEW:
            with self.subTest(name):
                module, plain = (layer(name, differentiable=differentiable).double().eval()
                                 for differentiable in (True, False))
                x, direction = inputs(dtype=torch.float64).requires_grad_(), inputs(4, dtype=torch.float64)
                mine, theirs = gradients(module, x.detach()), gradients(plain, x.detach())
                # What nothing reads has none.
                mine = {**{key: value * 0 for key, value in theirs.items()}, **mine}
                self.assertSame(mine, theirs, tolerance=1e-10)
                first, = torch.autograd.grad(module(x).square().sum(), x, create_graph=True)
                (first * direction).sum().backward()
                plus, minus = (gradients(plain, x.detach() + s * direction)["x"] for s in (1e-6, -1e-6))
                numeric = (plus - minus) / 2e-6
                self.assertLess((x.grad - numeric).norm(), 1e-5 * (1 + numeric.norm()))
        q = normal(1, 2, 16, 4)

        def f(q):
            return skytape.torch.attention("softmax", q, q, q, differentiable=True).square().sum()
        slope = torch.func.jvp(f, (q,), (q,))[1]
        self.assertLess((slope - (torch.func.grad(f)(q) * q).sum()).abs(), 1e-9)
        self.assertLess((torch.func.linearize(f, q)[1](q) - slope).abs(), 1e-9)
        self.assertEqual(torch.func.hessian(f)(q).shape, q.shape * 2)
        with self.assertRaisesRegex(skytape.UsageError, "needs draws="):
            torch.func.grad(
                lambda q: skytape.torch.attention("skyformer", q, q, q, differentiable=True).sum())(q)
        with self.assertRaisesRegex(skytape.UsageError, "drops no weights"):
            skytape.torch.attention("softmax", q, q, q, training=True, differentiable=True,
                                    attention_dropout=0.5)

    def test_forward_mode(self):
        q = normal(1, 2, 16, 4)
        for name in ("softmax", "skyformer", "vmean"):
            for tracked in (False, True):
                with (self.subTest(name, tracked=tracked),
                      self.assertRaises((RuntimeError, NotImplementedError))):
                    torch.func.jvp(lambda q: skytape.torch.attention(name, q, q, q),
                                   (q.clone().requires_grad_(tracked),), (q,))
            with self.subTest(name), self.assertRaises((RuntimeError, NotImplementedError)):
                torch.func.hessian(lambda q: skytape.torch.attention(name, q, q, q).sum())(q)

    def test_checkpointing(self):
        from torch.utils.checkpoint import checkpoint
        for name in FEW:
            for reentrant in (False, True):
                with self.subTest(name, reentrant=reentrant):
                    found = []
                    for call in (lambda m, x: m(x), lambda m, x: checkpoint(m, x, use_reentrant=reentrant)):
                        module, x = layer(name), inputs().requires_grad_()
                        torch.manual_seed(11)
                        call(module, x).square().sum().backward()
                        found.append({"x": x.grad, **{key: p.grad for key, p in module.named_parameters()
                                                      if p.grad is not None}})
                    # As nn.BatchNorm's, its averages move with each forward, of which there are two.
                    if name != "routing":
                        self.assertSame(*found)

    def test_offloaded_activations(self):
        module, x = layer("skyformer").eval(), inputs()
        expected = gradients(module, x)
        with torch.autograd.graph.save_on_cpu():
            self.assertSame(gradients(module, x), expected)

    def test_retained_graph(self):
        for name in SOME:
            with self.subTest(name):
                module, x = layer(name), inputs().requires_grad_()
                out = module(x).square().sum()
                first, second = (torch.autograd.grad(out, x, retain_graph=True)[0] for _ in range(2))
                self.assertTrue((first == second).all())

    def test_deepcopy_and_pickle(self):
        for name in SOME:
            module, x = layer(name).eval(), inputs()
            for same in (copy.deepcopy(module), pickle.loads(pickle.dumps(module))):
                with self.subTest(name):
                    self.assertTrue((same(x) == module(x)).all())
            file = io.BytesIO()
            torch.save(module, file)
            file.seek(0)
            self.assertTrue((torch.load(file, weights_only=False)(x) == module(x)).all())

    def test_state_dict(self):
        for name in SOME:
            for assign in (False, True):
                with self.subTest(name, assign=assign):
                    module, other, x = layer(name).train(), layer(name, seed=6), inputs()
                    module(x)  # running averages move
                    self.assertFalse((other.eval()(x) == module.eval()(x)).all())
                    state = {key: value.clone() for key, value in module.state_dict().items()}
                    other.load_state_dict(state, assign=assign)
                    self.assertTrue((other.eval()(x) == module.eval()(x)).all())
                    before = {key: value.clone() for key, value in state.items()}
                    other.train()(x)
                    moved = [key for key, value in other.state_dict().items() if (value != before[key]).any()]
                    self.assertEqual(moved, ["centroids"] if name == "routing" else [])

    def test_state_dict_of_another_length(self):
        loaded = []
        for name in METHODS:
            module, longer = (skytape.torch.Attention(name, E, HEADS, length=length).eval()
                              for length in (N, 40 * N))
            shapes, others = ({key: value.shape for key, value in each.state_dict().items()}
                              for each in (module, longer))
            with self.subTest(name):
                if shapes == others:
                    longer.load_state_dict(module.state_dict())
                    loaded.append(name)
                    continue
                for assign in (False, True):
                    with self.assertRaisesRegex(RuntimeError, "size mismatch for|Missing key"):
                        longer.load_state_dict(module.state_dict(), assign=assign)
        self.assertLessEqual({"softmax", "performer", "luna"}, set(loaded))
        self.assertTrue({"linformer", "synthesizer", "bigbird"}.isdisjoint(loaded))

    def test_meta_device(self):
        with torch.device("meta"):
            module = layer("linformer")
        module = module.to_empty(device="cpu")
        module.reset_parameters()
        self.assertTrue(module(inputs()).isfinite().all())
        with torch.device("meta"):
            out = layer("skyformer")(torch.empty(B, N, E).requires_grad_())
        self.assertEqual((out.shape, out.device.type), ((B, N, E), "meta"))
        q = torch.empty(2, 2, 8, 4, device="meta")
        for name, more, said in [
            ("softmax", {"v": q[0]}, r"softmax: v: expected \[B, H, N, D\], got float32 \[2, 8, 4\]$"),
            ("softmax", {"q": q[:, :, 1:]},
             r"softmax: q: expected v's shape \[2, 2, 8, 4\], got float32 \[2, 2, 7, 4\]$"),
            ("softmax", {"k": None}, "softmax: k is missing$"),
            ("softmax", {"attention_dropout": 2}, "attention_dropout: expected 0..0.99, got '2'"),
            ("synthesizer", {"x": q[0, :, 1:]},
             r"synthesizer: x: expected \[B, N, E\] = \[2, 8, E\], got float32 \[2, 7, 4\]$"),
            ("linformer", {"length": 4}, "linformer: length is 4, but v has N = 8$"),
            ("linformer", {"parameters": {"E": q[0, 0]}, "features": 3},
             r"'E': expected float32 \[3, 8\], got float32 \[8, 4\]$"),
        ]:
            with self.subTest(said), self.assertRaisesRegex(skytape.UsageError, said):
                skytape.torch.attention(name, **{"q": q, "k": q, "v": q, **more})
        with FakeTensorMode():
            out = layer("linformer")(torch.empty(B, N, E).requires_grad_())
            out.sum().backward()
        self.assertEqual(out.shape, (B, N, E))

    def test_empty_batches(self):
        for name in METHODS:
            for shape in ((0, N, E), (B, 0, E)):
                with self.subTest(name, shape=shape):
                    module, x = layer(name), torch.empty(shape, requires_grad=True)
                    out = module(x)
                    out.sum().backward()
                    self.assertEqual((out.shape, x.grad.shape), (shape, shape))

    def test_no_grad_and_inference_mode(self):
        for name in SOME:
            module, x = layer(name).eval(), inputs()
            for mode in (torch.no_grad, torch.inference_mode):
                with self.subTest(name, mode=mode.__name__), mode():
                    out = module(x)
                    self.assertFalse(out.requires_grad)
                self.assertTrue((out == module(x)).all())
            frozen = layer(name).requires_grad_(False)
            self.assertFalse(frozen(x).requires_grad)

    def test_hooks(self):
        module, seen = layer("skyformer"), []
        module.register_forward_hook(lambda *_: seen.append("forward"))
        module.register_full_backward_hook(lambda *_: seen.append("backward"))
        x = inputs().requires_grad_()
        x.register_hook(lambda g: seen.append("tensor"))
        module(x).sum().backward()
        self.assertEqual(seen, ["forward", "backward", "tensor"])

    def test_seeds(self):
        for name in METHODS:
            with self.subTest(name):
                first, second, again = layer(name, 1), layer(name, 2), layer(name, 1)
                one, two = (skytape.torch.Attention(name, E, HEADS, length=N) for _ in range(2))
                for key, ours in first.own.items():
                    value = getattr(first, ours)
                    if value.numel() > 1 and value.std() > 0:
                        self.assertFalse((value == getattr(second, ours)).all(), key)
                        self.assertFalse((getattr(one, ours) == getattr(two, ours)).all(), key)
                    self.assertTrue((value == getattr(again, ours)).all(), key)
                x = inputs()
                self.assertTrue((first.eval()(x) == again.eval()(x)).all())
                torch.manual_seed(1)
                left = first.train()(x)
                torch.manual_seed(1)
                self.assertTrue((left == again.train()(x)).all())
        chosen = [skytape.torch.Attention("linformer", E, HEADS, length=N, features=8, seed=42)
                  for _ in range(2)]
        self.assertTrue((chosen[0].E == chosen[1].E).all() if hasattr(chosen[0], "E") else True)

    def test_no_dropout_unless_asked(self):
        for name in ("softmax", "kernelized"):
            module, x = layer(name).train(), inputs()
            self.assertTrue((module(x) == module(x)).all())
            module = layer(name, attention_dropout=0.5).train()
            self.assertFalse((module(x) == module(x)).all())

    def test_padding(self):
        lengths = torch.tensor([[N], [7], [30]])
        padding = torch.arange(N)[None, :] >= lengths
        for name in METHODS:
            module, x = layer(name).eval(), inputs()
            with self.subTest(name):
                if name == "informer":
                    with self.assertRaisesRegex(skytape.UsageError, "reads padding"):
                        module(x, key_padding_mask=padding)
                    continue
                out = module(x, key_padding_mask=padding)
                other = module(x.masked_fill(padding[:, :, None], 5), key_padding_mask=padding)
                alone = torch.cat([module(x[i:i + 1], key_padding_mask=padding[i:i + 1]) for i in range(B)])
                for changed in (other, alone):
                    self.assertLess(((out - changed) * ~padding[:, :, None]).abs().max(),
                                    1e-5 * out.abs().max())

    def test_subclasses(self):
        class Tagged(torch.Tensor):
            pass
        for name in SOME:
            with self.subTest(name):
                module, x = layer(name).eval(), inputs()
                tagged = x.as_subclass(Tagged)
                self.assertTrue((module(tagged).as_subclass(torch.Tensor) == module(x)).all())
                if name != "informer":
                    module(tagged, key_padding_mask=torch.zeros(B, N, dtype=torch.bool))
                leaf = x.clone().as_subclass(Tagged).requires_grad_()
                module(leaf).sum().backward()

    def test_threads(self):
        # Made before: torch.manual_seed, by which layers and inputs are drawn, is one for all threads.
        made = {i: (layer("skyformer", i).eval(), inputs(i)) for i in range(1, 5)}
        alone = {i: gradients(*each) for i, each in made.items()}
        found = {}

        def work(i):
            found[i] = gradients(*made[i])
        threads = [threading.Thread(target=work, args=(i,)) for i in made]
        [thread.start() for thread in threads]
        [thread.join() for thread in threads]
        self.assertEqual(set(found), set(made))
        for i, each in found.items():
            self.assertSame(alone[i], each, i, 1e-6)

    def test_data_loader(self):
        for method in ("fork", "spawn"):
            with self.subTest(method):
                self.assertEqual(run_script(LOADER, method), "ok")

    def test_ddp(self):
        with tempfile.TemporaryDirectory() as folder:
            self.assertEqual(run_script(DDP, folder), "ok")

    def test_constant_memory(self):
        def resident_after(calls):
            for i in range(calls):
                if i % 3 == 0:  # an error half-way: the graph is dropped before backward, or backward throws
                    out = module(x)
                    try:
                        out.backward(torch.ones(1))
                    except RuntimeError:
                        pass
                else:
                    module(x).sum().backward()
                module.zero_grad()
            gc.collect()
            return int(pathlib.Path("/proc/self/statm").read_text().split()[1]) * 4096
        module, x = skytape.torch.Attention("skyformer", 8, 2, features=4), torch.ones(1, 16, 8)
        self.assertLess(-resident_after(1000) + resident_after(10000), 2 << 20)
