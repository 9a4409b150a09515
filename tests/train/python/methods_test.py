"""The attention methods on arrays of NumPy, and of JAX where it is installed."""
import gc
import pathlib
import re
import sys
import threading
import unittest
import weakref

import numpy as np

import skytape

ROOT = pathlib.Path(__file__).parents[3]
# Sizes that every method serves with 8 features, 4 of the windows' blocks among them.
B, H, N, D = 2, 2, 64, 8


def inputs(method, dtype=np.float64, n=N, seed=0):
    """Arguments of vjp for a row of methods(): arrays, and the options of its first sample."""
    random = np.random.default_rng(seed)
    q, k, v, dout = (random.standard_normal((B, H, n, D)).astype(dtype) for _ in range(4))
    more = dict(method["samples"][0])
    if method["reads_x"]:
        more["x"] = random.standard_normal((B, n, H * D)).astype(dtype)
    return [q, None if method["shared_qk"] else k, v, dout], more


def exact(q, k, v, mask=None):
    scores = q @ k.swapaxes(2, 3) / np.sqrt(q.shape[-1])
    if mask is not None:
        scores = np.where(mask[:, None, None, :], scores, -np.inf)
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    return weights / weights.sum(-1, keepdims=True) @ v


class Methods(unittest.TestCase):
    def test_the_list_is_the_registry(self):
        names = re.findall(r"METHOD\((\w+)\)", (ROOT / "attention/methods.def").read_text())
        self.assertEqual([row["name"] for row in skytape.methods()], names)
        for row in skytape.methods():
            self.assertTrue(row["paper"] and row["cost"] and row["idea"], row["name"])

    def test_softmax_is_exact_attention_with_a_mask_too(self):
        (q, k, v, _), _ = inputs(skytape.methods()[0])
        mask = np.arange(N)[None, :] < np.array([[N], [37]])
        for given in (None, mask):
            difference = skytape.attention("softmax", q, k, v, given) - exact(q, k, v, given)
            self.assertLess(abs(difference).max(), 1e-12)

    def test_gradients_of_every_method_are_those_of_a_difference_along_a_direction(self):
        h = 1e-6
        for row in skytape.methods():
            with self.subTest(row["name"]):
                (q, k, v, dout), more = inputs(row)
                more["seed"] = 3
                _, gradients = skytape.vjp(row["name"], q, k, v, dout, **more)
                direction = np.random.default_rng(1).standard_normal(v.shape)
                plus, minus = (skytape.attention(row["name"], q, k, v + s * direction, **more) for s in (h, -h))
                numeric = ((plus - minus) / (2 * h) * dout).sum()
                analytic = (gradients["v"] * direction).sum()
                self.assertLess(abs(analytic - numeric) / (1 + abs(numeric)), 1e-6)

    def test_f32_gives_what_f64_gives(self):
        for row in skytape.methods():
            if row["random"]:
                continue  # draws may fall on another side of a threshold
            with self.subTest(row["name"]):
                (q, k, v, _), more = inputs(row)
                single = {key: value.astype(np.float32) if key == "x" else value for key, value in more.items()}
                out = skytape.attention(row["name"], q, k, v, **more)
                less = skytape.attention(row["name"], *(a if a is None else a.astype(np.float32) for a in (q, k, v)),
                                         **single)
                self.assertEqual(less.dtype, np.float32)
                self.assertLess(np.linalg.norm(out - less), 1e-4 * np.linalg.norm(out))

    def test_parameters_are_fresh_from_the_seed_or_the_callers(self):
        (q, k, v, dout), _ = inputs(skytape.methods()[0])
        first, gradients = skytape.vjp("linformer", q, k, v, dout, features=8, sharing="headwise")
        self.assertEqual(sorted(gradients), ["E", "F", "k", "q", "v"])
        again, other = (skytape.attention("linformer", q, k, v, features=8, seed=seed, sharing="headwise")
                        for seed in (0, 1))
        self.assertTrue((first == again).all())
        self.assertFalse((first == other).all())
        eye = {"E": np.eye(N), "F": np.eye(N)}
        out = skytape.attention("linformer", q, k, v, features=N, sharing="headwise", parameters=eye)
        self.assertLess(abs(out - exact(q, k, v)).max(), 1e-12)

    def test_what_is_wrong_is_an_exception_with_our_text(self):
        (q, k, v, _), _ = inputs(skytape.methods()[0])
        for arguments, more, said in [
            (("skyfomer", q, k, v), {}, "did you mean 'skyformer'"),
            (("skyformer", q, k, v), {"featurs": 8}, "did you mean 'features'"),
            (("skyformer", q, k, v), {"features": 0}, "features"),
            (("softmax", q[0], k, v[0]), {}, r"must be \[B, H, N, D\]"),
            (("softmax", q, k[:, :, 1:], v), {}, "k must have v's shape"),
            (("softmax", q.astype(np.float32), k, v), {}, "differ in dtype or device"),
            (("softmax", q.astype(np.int64), k, v), {}, "q: expected float32, float64 or int32, got int64"),
            (("softmax", [1.0], k, v), {}, "q: expected an array of NumPy.* got .*list"),
            (("softmax", q, k, v, np.ones((B, N + 1))), {}, r"mask must be \[B, N\]"),
            (("softmax", q, None, v), {}, "k is missing"),
            (("reformer", q, k, v), {}, "k must be None: queries serve as keys"),
            (("linformer", q, k, v), {"features": 8, "parameters": {}}, "'E' is missing"),
        ]:
            with self.subTest(said), self.assertRaisesRegex(skytape.Error, said):
                skytape.attention(*arguments, **more)
        with self.assertRaises(ValueError):
            skytape.attention("skyfomer", q, k, v)

    def test_arrays_are_read_in_place_and_strided_ones_as_they_are(self):
        (q, k, v, _), _ = inputs(skytape.methods()[0])
        tape = skytape.Tape()
        leaf = tape.input(q)
        q[0, 0, 0, 0] = 7
        self.assertEqual(leaf.value[0, 0, 0, 0], 7)
        turned = np.ascontiguousarray(k.swapaxes(1, 2)).swapaxes(1, 2)
        self.assertFalse(turned.flags.c_contiguous)
        self.assertTrue((skytape.attention("softmax", q, turned, v) == skytape.attention("softmax", q, k, v)).all())

    def test_arrays_live_as_long_as_tensors_need_them_and_no_longer(self):
        class Watched(np.ndarray):
            pass
        array = np.ones((2, 3)).view(Watched)
        gone = weakref.ref(array)
        tape = skytape.Tape()
        leaf = tape.input(array)
        del array
        gc.collect()
        self.assertEqual(leaf.value.sum(), 6)
        del tape, leaf
        gc.collect()
        self.assertIsNone(gone())

    def test_memory_stays_constant_over_many_calls(self):
        q, k, v, dout = inputs(skytape.methods()[0], np.float32, 16)[0]

        def resident():
            return int(pathlib.Path("/proc/self/statm").read_text().split()[1]) * 4096

        def calls(count):
            for _ in range(count):
                skytape.vjp("skyformer", q, k, v, dout, features=8)
        calls(1000)
        before = resident()
        calls(10000)
        self.assertLess(resident() - before, 1 << 20)

    def test_two_threads_get_what_one_gets(self):
        rows = [row for row in skytape.methods() if row["name"] in ("softmax", "skyformer", "performer", "routing")]
        alone = {}

        def work(into):
            for row in rows:
                (q, k, v, dout), more = inputs(row, np.float32)
                for _ in range(20):
                    into[row["name"]] = skytape.vjp(row["name"], q, k, v, dout, **more)
        work(alone)
        found = [{} for _ in range(3)]
        threads = [threading.Thread(target=work, args=(into,)) for into in found]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        for into in found:
            for name, (out, gradients) in alone.items():
                self.assertTrue((into[name][0] == out).all(), name)
                for key, value in gradients.items():
                    self.assertTrue((into[name][1][key] == value).all(), (name, key))

    def test_other_python_threads_run_while_we_compute(self):
        interval = sys.getswitchinterval()
        q, k, v = (np.ones((1, 2, 8192, 32), np.float32) for _ in range(3))
        ticks, stop = [0], threading.Event()

        def tick():
            while not stop.wait(0.001):
                ticks[0] += 1
        sys.setswitchinterval(100)  # none would run unless the lock is given up
        thread = threading.Thread(target=tick)
        thread.start()
        try:
            skytape.attention("softmax", q, k, v)
            self.assertGreater(ticks[0], 3)
        finally:
            stop.set()
            sys.setswitchinterval(interval)
            thread.join()

    def test_jax_gets_arrays_of_jax(self):
        try:
            import jax.numpy as jnp
        except ImportError:
            self.skipTest("no JAX here")
        q, k, v, dout = inputs(skytape.methods()[0], np.float32)[0]
        out, gradients = skytape.vjp("softmax", *map(jnp.asarray, (q, k, v, dout)))
        self.assertIsInstance(out, jnp.ndarray)
        self.assertIsInstance(gradients["q"], jnp.ndarray)
        self.assertTrue((np.asarray(out) == skytape.attention("softmax", q, k, v)).all())
