"""The attention methods on arrays of NumPy, and of JAX where it is installed."""
import ast
import contextlib
import gc
import importlib.util
import io
import pathlib
import re
import subprocess
import sys
import threading
import unittest
import weakref
from concurrent.futures import ThreadPoolExecutor

import numpy as np

import skytape

ROOT = pathlib.Path(__file__).parents[3]
# Sizes that every method serves with 8 features, 4 of the windows' blocks among them.
B, H, N, D = 2, 2, 64, 8
METHODS = {row["name"]: row for row in skytape.methods()}


def inputs(name="softmax", dtype=np.float64, n=N):
    """Arguments of vjp: arrays, and the options of the method's first sample."""
    random, row = np.random.default_rng(0), METHODS[name]
    q, k, v, dout = random.standard_normal((4, B, H, n, D)).astype(dtype)
    x = {"x": random.standard_normal((B, n, H * D)).astype(dtype)} if row["reads_x"] else {}
    return [q, None if row["shared_qk"] else k, v, dout], {**row["samples"][0], **x}


Q, K, V, DOUT = inputs()[0]


def exact(q, k, v, mask=None):
    scores = q @ k.swapaxes(2, 3) / np.sqrt(q.shape[-1])
    if mask is not None:
        scores = np.where(mask[:, None, None, :], scores, -np.inf)
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    return weights / weights.sum(-1, keepdims=True) @ v


class Methods(unittest.TestCase):
    def test_the_list_is_the_registry(self):
        names = re.findall(r"METHOD\((\w+)\)", (ROOT / "attention/methods.def").read_text())
        self.assertEqual(list(METHODS), names)
        self.assertTrue(all(row["paper"] and row["cost"] and row["idea"] for row in METHODS.values()))

    def test_softmax_is_exact_attention_with_a_mask_too(self):
        for mask in (None, np.arange(N)[None, :] < np.array([[N], [37]])):
            for dtype, tolerance in ((np.float64, 1e-12), (np.float32, 1e-5)):
                out = skytape.attention("softmax", *(array.astype(dtype) for array in (Q, K, V)), mask)
                self.assertEqual(out.dtype, dtype)
                self.assertLess(abs(out - exact(Q, K, V, mask)).max(), tolerance)

    def test_gradients_of_every_method_are_those_of_a_difference_along_a_direction(self):
        h, direction = 1e-6, np.random.default_rng(1).standard_normal(V.shape)
        for name in METHODS:
            with self.subTest(name):
                (q, k, v, dout), more = inputs(name)
                _, gradients = skytape.vjp(name, q, k, v, dout, seed=3, **more)
                plus, minus = (skytape.attention(name, q, k, v + s * direction, seed=3, **more)
                               for s in (h, -h))
                numeric = ((plus - minus) / (2 * h) * dout).sum()
                self.assertLess(abs((gradients["v"] * direction).sum() - numeric) / (1 + abs(numeric)), 1e-6)

    def test_parameters_are_fresh_from_the_seed_or_the_callers(self):
        first, gradients = skytape.vjp("linformer", Q, K, V, DOUT, features=8, sharing="headwise")
        self.assertEqual(sorted(gradients), ["E", "F", "k", "q", "v"])
        again, other = (skytape.attention("linformer", Q, K, V, features=8, seed=seed, sharing="headwise")
                        for seed in (0, 1))
        self.assertTrue((first == again).all())
        self.assertFalse((first == other).all())
        eye = {"E": np.eye(N), "F": np.eye(N)}
        out = skytape.attention("linformer", Q, K, V, features=N, sharing="headwise", parameters=eye)
        self.assertLess(abs(out - exact(Q, K, V)).max(), 1e-12)

    def test_length_is_the_nominal_one_of_parameters_and_formulas(self):
        length = 3 * N // 2
        out, gradients = skytape.vjp("linformer", Q, K, V, DOUT, features=8, length=length)
        self.assertEqual(gradients["E"].shape, (8, length))
        self.assertGreater(abs(gradients["E"][:, :N]).max(), 0)
        self.assertEqual(abs(gradients["E"][:, N:]).max(), 0)
        found = [skytape.attention("cosformer", Q, K, V, length=length)]
        if importlib.util.find_spec("jax") is not None:
            from skytape.jax import attention
            found.append(attention("cosformer", *(array.astype("f4") for array in (Q, K, V)), length=length))
        near = np.cos((np.arange(N)[:, None] - np.arange(N)) * np.pi / (2 * length))
        weights = np.maximum(Q, 0) @ np.maximum(K, 0).swapaxes(2, 3) * near
        expected = weights @ V / np.maximum(weights.sum(-1, keepdims=True), 1e-6)
        for each in found:
            self.assertLess(abs(np.asarray(each) - expected).max(), 1e-4)

    def test_training_and_seed_decide_what_is_dropped(self):
        def call(training, seed):
            return skytape.attention("softmax", Q, K, V, training=training, seed=seed, attention_dropout=0.4)
        self.assertTrue((call(False, 5) == call(False, 6)).all())
        self.assertTrue((call(True, 5) == call(True, 5)).all())
        self.assertFalse((call(True, 5) == call(True, 6)).all())
        self.assertFalse((call(True, 5) == call(False, 5)).all())

    def test_what_is_wrong_is_an_exception_with_our_text(self):
        for arguments, more, said in [
            (("skyfomer", Q, K, V), {}, "did you mean 'skyformer'"),
            (("skyformer", Q, K, V), {"featurs": 8}, "did you mean 'features'"),
            (("skyformer", Q, K, V), {"features": 0}, "features"),
            (("softmax", Q, K, V), {"attn_mask": np.ones((B, N), bool)},
             r"attn_mask: expected a number or a text, as options of a method are, got bool \[2, 64\]"),
            (("softmax", Q[0], K, V[0]), {},
             r"softmax: v: expected float32 or float64 \[B, H, N, D\], got float64 \[2, 64, 8\]$"),
            (("softmax", Q[..., :5], K, V), {},
             r"softmax: q: expected v's shape \[2, 2, 64, 8\], got float64 \[2, 2, 64, 5\]$"),
            (("softmax", Q, K[:, :, 1:], V), {},
             r"softmax: k: expected v's shape \[2, 2, 64, 8\], got float64 \[2, 2, 63, 8\]$"),
            (("softmax", Q.astype(np.float32), K, V), {},
             r"q and v differ in dtype or device: q float32 \[2, 2, 64, 8\], v float64"),
            (("softmax", Q.astype(np.int64), K, V), {},
             r"q: expected float32, float64, float16 or bfloat16, got int64 \[2, 2, 64, 8\]"),
            (("softmax", [1.0], K, V), {}, r"q: expected v's shape \[2, 2, 64, 8\], got float64 \[1\]$"),
            (("softmax", [[1.0], [2.0, 3.0]], K, V), {}, "q: expected an array"),
            (("softmax", Q, K, V, np.ones((B, N + 1), bool)), {},
             r"mask: expected \[B, N\] = \[2, 64\], got \[2, 65\]$"),
            (("softmax", Q, K, V, np.ones((B, N))), {}, r"mask: expected an array of bool \[B, N\], "
             r"true for a token, false for padding, got float64 \[2, 64\]"),
            (("softmax", *[Q.astype(np.int32)] * 3), {},
             r"v: expected float32 or float64 \[B, H, N, D\], got int32"),
            (("softmax", Q, K, V), {"seed": -1}, "seed: expected 0 to"),
            (("softmax", None, K, V), {}, "q is missing"),
            (("softmax", Q, None, V), {}, "k is missing"),
            (("reformer", Q, K, V), {}, "k must be None: the method reads none"),
            (("softmax", Q, K, V), {"x": V}, "x must be None"),
            (("synthesizer", Q, K, V), {"x": V},
             r"synthesizer: x: expected \[B, N, E\] = \[2, 64, E\], got float64 \[2, 2, 64, 8\]$"),
            (("softmax", Q, K, V), {"length": N - 1}, "length is 63"),
            (("linformer", Q, K, V), {"features": 8, "parameters": {}}, "'E' is missing"),
            (("linformer", Q, K, V), {"features": 8, "parameters": {"E": Q}},
             r"'E': expected float64 \[8, 64\], got float64 \[2, 2, 64, 8\]$"),
            (("softmax", Q, K, V), {"parameters": {"E": Q}}, "the method has no 'E'"),
        ]:
            with self.subTest(said), self.assertRaisesRegex(skytape.Error, said):
                skytape.attention(*arguments, **more)
        with self.assertRaises(ValueError):
            skytape.attention("skyfomer", Q, K, V)
        for dout in (DOUT[..., 0], DOUT.astype(np.float32), 1.0):
            with self.assertRaisesRegex(skytape.UsageError, "dout: expected what the output is, "
                                        r"float64 \[2, 2, 64, 8\], got float"):
                skytape.vjp("softmax", Q, K, V, dout)

    def test_an_option_that_another_one_leaves_without_effect_is_refused(self):
        for name, options, said in [
            ("linformer", {"projection": "mean", "frozen": True},
             "frozen has no effect: linformer.projection is mean"),
            ("informer", {"top": 5, "samples": 7, "features": 3},
             "features has no effect: informer.samples is 7 and informer.top is 5"),
        ]:
            with self.assertRaisesRegex(skytape.UsageError, f"^{name}.{said}$"):
                skytape.attention(name, Q, K, V, **options)

    def test_arrays_are_read_in_place_and_strided_ones_as_they_are(self):
        tape, array = skytape.Tape(), Q.copy()
        leaf = tape.input(array)
        array[0, 0, 0, 0] = 7
        self.assertEqual(leaf.value[0, 0, 0, 0], 7)
        turned = np.ascontiguousarray(K.swapaxes(1, 2)).swapaxes(1, 2)
        self.assertFalse(turned.flags.c_contiguous)
        self.assertTrue((skytape.attention("softmax", Q, turned, V) ==
                         skytape.attention("softmax", Q, K, V)).all())

    def test_arrays_live_as_long_as_tensors_need_them_and_no_longer(self):
        class Watched(np.ndarray):
            pass
        array, tape = np.ones((2, 3)).view(Watched), skytape.Tape()
        gone, leaf = weakref.ref(array), tape.input(array)
        del array
        gc.collect()
        self.assertEqual(leaf.value.sum(), 6)
        del tape, leaf
        gc.collect()
        self.assertIsNone(gone())

    def test_memory_stays_constant_over_many_calls(self):
        (q, k, v, dout), more = inputs("skyformer", np.float32, 16)

        def resident_after(calls):
            for _ in range(calls):
                skytape.vjp("skyformer", q, k, v, dout, features=8)
            return int(pathlib.Path("/proc/self/statm").read_text().split()[1]) * 4096
        self.assertLess(-resident_after(1000) + resident_after(10000), 1 << 20)

    def test_two_threads_get_what_one_gets(self):
        def work(name):
            arrays, more = inputs(name, np.float32)
            for _ in range(20):
                out, gradients = skytape.vjp(name, *arrays, **more)
            return {"out": out, **gradients}
        names = ["softmax", "skyformer", "performer", "routing"]
        with ThreadPoolExecutor(3) as pool:
            for name, found in zip(names * 3, pool.map(work, names * 3)):
                for key, value in work(name).items():
                    self.assertTrue((found[key] == value).all(), (name, key))

    def test_other_python_threads_run_while_we_compute(self):
        q, interval = np.ones((1, 2, 8192, 32), np.float32), sys.getswitchinterval()
        ticks, stop = [], threading.Event()

        def tick():
            while not stop.wait(0.001):
                ticks.append(0)
        self.addCleanup(sys.setswitchinterval, interval)
        sys.setswitchinterval(100)  # none would run unless the lock is given up
        with ThreadPoolExecutor() as pool:
            pool.submit(tick)
            skytape.attention("softmax", q, q, q)
            stop.set()
        self.assertGreater(len(ticks), 3)

    def test_the_lines_of_the_readme_run(self):
        readme = (ROOT / "train/python/README.md").read_text()
        for lines in re.findall(r"```python\n(.*?)```", readme, re.S):
            imports = [node for node in ast.parse(lines).body if isinstance(node, ast.Import)]
            libraries = {name.name.split(".")[0] for node in imports for name in node.names}
            with self.subTest(lines.splitlines()[0]), contextlib.redirect_stdout(io.StringIO()):
                for library in sorted(libraries):
                    if importlib.util.find_spec(library) is None:
                        self.skipTest(f"no {library} here")
                exec(lines, {})

    @unittest.skipUnless(importlib.util.find_spec("jax"), "no JAX here")
    def test_errors_under_jax_are_ours(self):
        import jax
        from skytape.jax import attention
        q, x = Q.astype("f4"), np.ones((B, N - 1, 8), "f4")
        for name, more, said in [
            ("softmax", {"k": q[:, :, 1:]},
             r"k: expected v's shape \[2, 2, 64, 8\], got float32 \[2, 2, 63, 8\]$"),
            ("softmax", {"q": q[:1]}, r"q: expected v's shape \[2, 2, 64, 8\], got float32 \[1, 2, 64, 8\]$"),
            ("softmax", {"mask": np.ones((B, 3), bool)},
             r"mask: expected \[B, N\] = \[2, 64\], got bool \[2, 3\]$"),
            ("synthesizer", {"x": x}, r"x: expected \[B, N, E\] = \[2, 64, E\], got float32 \[2, 63, 8\]$"),
            ("softmax", {"k": "x"}, "k: expected an array of JAX, or what makes one, got str: "),
            ("softmax", {"q": {"a": q}}, "q: expected an array of JAX, or what makes one, got dict: "),
            ("softmax", {"mask": "x"}, "mask: expected an array of JAX, or what makes one, got str: "),
            ("linformer", {"parameters": {"E": "x"}},
             "E: expected an array of JAX, or what makes one, got str: "),
            ("softmax", {"v": q.astype(int)},
             r"v: expected floating-point numbers, got int32 \[2, 2, 64, 8\]$"),
            ("softmax", {"v": None}, "softmax: v is missing$"),
            ("softmaks", {}, "did you mean 'softmax'"),
            ("skyformer", {"featurs": 3}, "did you mean 'features'"),
            ("linformer", {"features": 8, "parameters": {"E": q[0, 0]}},
             r"'E': expected float32 \[8, 64\], got float32 \[64, 8\]$"),
            ("reformer", {}, "k must be None"),
            ("skyformer", {"seed": jax.numpy.float32(1.5)},
             r"seed: expected one whole number, got float32 \[\]$"),
            ("skyformer", {"seed": jax.numpy.array([1, 2])},
             r"seed: expected one whole number, got int32 \[2\]$"),
            ("skyformer", {"seed": 2**64}, r"seed: expected 0 to 2\^64 - 1, got 18446744073709551616$"),
            ("softmax", {"length": 80.9}, "length: expected a whole number, got 80.9$"),
            ("linformer", {"parameters": {1: q}}, "parameters: expected a name as key, got 1$"),
        ]:
            for traced in (False, True):
                def call(v):
                    return attention(name, **{"q": q, "k": q, "v": v, **more})
                with self.subTest(said, traced=traced), self.assertRaisesRegex(skytape.UsageError, said):
                    (jax.jit(call) if traced else call)(q)

    @unittest.skipUnless(importlib.util.find_spec("jax"), "no JAX here")
    def test_memory_stays_constant_over_many_calls_of_jax_that_are_not_compiled(self):
        import jax
        from skytape.jax import attention
        q = Q[:1, :1, :8].astype("f4")
        gradient = jax.grad(lambda q: attention("softmax", q, q, q).sum())

        def resident_after(calls):
            for _ in range(calls):
                gradient(q).block_until_ready()
            return int(pathlib.Path("/proc/self/statm").read_text().split()[1]) * 4096
        self.assertLess(-resident_after(10) + resident_after(40), 16 << 20)

    @unittest.skipUnless(importlib.util.find_spec("jax"), "no JAX here")
    def test_jax_on_one_core_and_from_several_threads_does_not_wait_for_itself(self):
        text = ("import os, sys, threading\n"
                "if sys.argv[1] == 'core': os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})\n"
                "import skytape.jax, jax, jax.numpy as jnp\nq = jnp.ones((2, 4, 512, 64))\n"
                "f = jax.jit(jax.grad(lambda q: skytape.jax.attention('vmean', q * 2, q, q).sum()))\n"
                "def work():\n    y = q\n    for _ in range(20): y = f(y + 1)\n    print(y.shape)\n"
                "threads = [threading.Thread(target=work) "
                "for _ in range(1 if sys.argv[1] == 'core' else 6)]\n"
                "[thread.start() for thread in threads]\n[thread.join() for thread in threads]")
        for what in ("core", "threads"):
            with self.subTest(what):
                done = subprocess.run([sys.executable, "-c", text, what], capture_output=True, text=True,
                                      timeout=300)
                self.assertEqual((done.returncode, done.stdout.count("(2, 4, 512, 64)")),
                                 (0, 1 if what == "core" else 6), done.stderr)

    @unittest.skipUnless(importlib.util.find_spec("jax"), "no JAX here")
    def test_second_derivatives_under_jax_are_an_error_that_says_so(self):
        import jax
        from skytape.jax import attention
        q = Q[:1, :1, :4].astype("f4")

        def loss(q):
            return (attention("softmax", q, q, q)**2).sum()
        for second in (jax.hessian(loss), jax.grad(lambda q: jax.grad(loss)(q).sum()),
                       jax.jit(jax.jacrev(jax.grad(loss)))):
            with self.assertRaisesRegex(NotImplementedError,
                                        "attention by softmax has first derivatives of reverse mode alone"):
                second(q)
        self.assertEqual(jax.jit(jax.vmap(jax.grad(loss)))(q[None]).shape, (1, *q.shape))

    @unittest.skipUnless(importlib.util.find_spec("jax"), "no JAX here")
    def test_gradients_that_a_method_does_not_have_are_errors_under_jax(self):
        import jax
        from skytape.jax import attention
        q, projection = Q.astype("f4"), np.ones((6, 8), "f4")

        def loss(projection, q):
            return (attention("performer", q, q, q, parameters={"projection": projection},
                              features=6)**2).sum()
        for gradient in (jax.grad(loss), jax.jit(jax.grad(lambda projection, q: loss(projection * 2, q))),
                         jax.grad(jax.checkpoint(loss)),
                         lambda projection, q: jax.vmap(jax.grad(loss), (0, None))(projection[None], q)):
            with self.assertRaisesRegex(skytape.UsageError, "projection: its gradient is wanted, "
                                        "but performer does not train it"):
                gradient(projection, q)
        found = jax.grad(loss, argnums=1)(projection, q)
        both = jax.grad(lambda both: loss(jax.lax.stop_gradient(both[0]), both[1]))((projection, q))
        self.assertTrue((found == both[1]).all() and (found != 0).any())

    def test_jax_gets_arrays_of_jax(self):
        try:
            import jax.numpy as jnp
        except ImportError:
            self.skipTest("no JAX here")
        q, k, v, dout = inputs("softmax", np.float32)[0]
        out, gradients = skytape.vjp("softmax", *map(jnp.asarray, (q, k, v, dout)))
        self.assertIsInstance(out, jnp.ndarray)
        self.assertIsInstance(gradients["q"], jnp.ndarray)
        self.assertTrue((np.asarray(out) == skytape.attention("softmax", q, k, v)).all())
