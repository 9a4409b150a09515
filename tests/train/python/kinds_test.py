"""Wrong kinds of arguments: each public function says in a sentence of Python what was wrong."""
import ast
import contextlib
import enum
import importlib.util
import inspect
import io
import itertools
import json
import os
import pathlib
import re
import signal
import subprocess
import sys
import tempfile
import time
import unittest
import warnings

import numpy as np

import skytape
from skytape import ops

HAS_TORCH, HAS_JAX = (importlib.util.find_spec(name) is not None for name in ("torch", "jax"))
if HAS_TORCH:
    import torch
    import skytape.torch
if HAS_JAX:
    import skytape.jax

INTERNAL = ("incompatible function", "bad_cast", "M_range_check", "nanobind", "std::", "basic_string",
            "try and catch", "C++", "@cpu", "f32[", "f64[", "i32[")
A = np.random.default_rng(0).standard_normal((1, 2, 16, 4))
WRONG = [None, 3, -1, 2.5, "softmax", b"x", [], [1.0], [[1], [2, 3]], {}, {"a": 1}, object(), A,
         A.astype(np.int64), A[0], A.astype(np.complex128), np.array(["a"]), np.array([None]), np.float32(2),
         float("nan"), 2**70, lambda *a: None]


class Kinds(unittest.TestCase):
    def attempt(self, what, call):
        """Whatever it does, it is no message of the binding's."""
        with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
            warnings.simplefilter("ignore")
            try:
                call()
            except Exception as error:
                text = f"{type(error).__name__}: {error}"
                self.assertFalse([part for part in INTERNAL if part in text], f"{what}: {text}")
                self.assertGreater(len(str(error)), 3, what)

    def each_argument(self, what, call, good):
        for i in range(len(good)):
            for wrong in WRONG:
                with self.subTest(what, argument=i, wrong=type(wrong).__name__):
                    self.attempt(what, lambda: call(*good[:i], wrong, *good[i + 1:]))
        self.attempt(what, lambda: call())
        self.attempt(what, lambda: call(*good, *[1] * 12))
        self.attempt(what, lambda: call(*good, nosuch=1))

    def test_functions_of_methods(self):
        self.each_argument("attention", skytape.attention, ["softmax", A, A, A, None, 1, False])
        self.each_argument("vjp", skytape.vjp, ["softmax", A, A, A, A, None, 1, False])
        self.each_argument("draws", skytape.draws, ["skyformer", A, A, A, None, 1, False])
        for key in ("x", "length", "parameters", "draws", "attention_dropout"):
            for wrong in WRONG:
                self.attempt(key, lambda: skytape.attention("softmax", A, A, A, **{key: wrong}))
                self.attempt(key, lambda: skytape.attention(
                    "linformer", A, A, A, features=8, **{key: {"E": wrong} if key != "length" else wrong}))
        self.each_argument("set_threads", skytape.set_threads, ["two"])

    def test_tape(self):
        tape = skytape.Tape()
        a = tape.input(A[0, 0])
        self.each_argument("Tape.input", tape.input, [A])
        self.each_argument("Tape.constant", tape.constant, [A])
        self.each_argument("Tape.record", tape.record, ["mine", [a], A[0, 0], lambda dy: [dy]])
        self.each_argument("Tape.backward", skytape.Tape().backward, [a])
        self.each_argument("Tape.grad", tape.grad, [a])
        self.each_argument("Tape.dot", tape.dot, ["title", True])
        self.each_argument("gradcheck", skytape.gradcheck, [lambda x: x, [A], 1e-6, 1])
        self.attempt("Tape", lambda: skytape.Tape(3))
        self.attempt("Var", lambda: skytape.Var(3))
        self.each_argument("Dropout", skytape.Dropout, [0.1, 3])
        for name in dir(ops):
            function = getattr(ops, name)
            if not name.startswith("_") and callable(function):
                for arguments in ([], [a], [a, a], [a, 1], [a, 9], [[a], 0], [[], 0], [a, "x"], [3], [A],
                                  [skytape.Var()], [a, [1]], [a] * 5):
                    self.attempt(name, lambda: function(*arguments))
        for returned in (None, 3, [A], [None, None], "ab", A):
            def bad(dy):
                return returned
            again = skytape.Tape()
            self.attempt("backward", lambda: again.backward(
                ops.sum_all(again.record("mine", [again.input(A)], A, bad))))
        for wrong in WRONG:
            self.attempt("+", lambda: a + wrong)
            self.attempt("@", lambda: a @ wrong)
            self.attempt("/", lambda: wrong / a)
            self.attempt("**", lambda: a**wrong)
            self.attempt("[]", lambda: a[wrong])
            self.attempt("<", lambda: a < wrong)
            self.attempt("sum", lambda: a.sum(wrong))
            self.attempt("reshape", lambda: a.reshape(wrong))

    def test_files(self):
        for function in (skytape.load, skytape.results, skytape.curves):
            self.each_argument(function.__name__, function, ["nowhere"])

    def test_texts_that_the_engine_cannot_read_are_errors_of_load(self):
        for arguments, said in (
                (("\udc80",), r"load: folder: expected text in UTF-8 without zeros, got '\\udc80'"),
                (("a\0b",), r"load: folder: expected text in UTF-8 without zeros, got 'a\\x00b'"),
                (("a", "\udc80"), "load: checkpoint: expected text in UTF-8"),
                (("a", "best", "\udc80"), "load: device: expected text in UTF-8")):
            with self.subTest(said), self.assertRaisesRegex(skytape.UsageError, said):
                skytape.load(*arguments)

    @unittest.skipUnless(HAS_TORCH, "no PyTorch here")
    def test_torch(self):
        t = torch.tensor(A)
        wrong = [*WRONG, t.int(), t[0], t.to_sparse(), t.bfloat16(), t.bool(), t.clone().requires_grad_(),
                 torch.tensor(1.0)]
        for i, good in enumerate([["softmax", t, t, t, None, 1, False]] * 7):
            for each in wrong:
                self.attempt(f"argument {i}", lambda: skytape.torch.attention(*good[:i], each, *good[i + 1:]))
        for each in wrong:
            for key in ("x", "length", "parameters", "draws", "nosuch"):
                self.attempt(key, lambda: skytape.torch.attention("softmax", t, t, t, **{key: each}))
            self.attempt("Attention", lambda: skytape.torch.Attention(each, 8, 2))
            self.attempt("Attention", lambda: skytape.torch.Attention("softmax", each, 2))
            self.attempt("Attention", lambda: skytape.torch.Attention("softmax", 8, each))
            self.attempt("Attention", lambda: skytape.torch.Attention("linformer", 8, 2, length=each))
            self.attempt("Attention", lambda: skytape.torch.Attention("softmax", 8, 2, seed=each))
            self.attempt("forward", lambda: skytape.torch.Attention("softmax", 8, 2)(each))
            self.attempt("mask", lambda: skytape.torch.Attention("softmax", 8, 2)(torch.ones(2, 4, 8), each))

    def test_flags_are_true_or_false(self):
        calls = {"training": [lambda flag: skytape.attention("softmax", A, A, A, training=flag)]}
        if HAS_TORCH:
            t = torch.tensor(A)
            calls["training"].append(lambda flag: skytape.torch.attention("softmax", t, t, t, training=flag))
            calls["differentiable"] = [
                lambda flag: skytape.torch.attention("softmax", t, t, t, differentiable=flag),
                lambda flag: skytape.torch.Attention("softmax", 8, 2, differentiable=flag)]
        if HAS_JAX:
            j = A.astype(np.float32)
            calls["training"].append(lambda flag: skytape.jax.attention("softmax", j, j, j, training=flag))
        for argument, call in ((argument, call) for argument, several in calls.items() for call in several):
            for good in (False, np.False_, 0, np.int64(0)):
                call(good)
            for wrong in ("False", "no", None, 2, 1.0, [], np.array([1, 0])):
                with self.subTest(argument, wrong=wrong), self.assertRaisesRegex(
                        skytape.UsageError, f"{argument}: expected True or False, got "):
                    call(wrong)

    def test_texts_that_the_engine_would_read_in_part_are_refused(self):
        calls = [lambda name="skyformer", parameters=None, **options: skytape.attention(
            name, A, A, A, parameters=parameters, **options)]
        if HAS_TORCH:
            t = torch.tensor(A)
            calls.append(lambda name="skyformer", parameters=None, **options: skytape.torch.attention(
                name, t, t, t, parameters=parameters, **options))
        for call, (said, more) in itertools.product(calls, [
            (r"options: expected a name, got 'features=4;gamma'", {"features=4;gamma": 0.5}),
            (r"options: expected a name, got 'features\\n'", {"features\n": 4}),
            (r"options: expected a name, got '\\udc80'", {"\udc80": 4}),
            (r"features: expected one value, got '4\\x00'", {"features": "4\0"}),
            (r"features: expected one value, got '\\udc80'", {"features": "\udc80"}),
            (r"name: expected a method's name, got 'softmax\\x00'", {"name": "softmax\0"}),
            (r"name: expected a method's name, got '\\udc80'", {"name": "\udc80"}),
            (r"parameters: expected a name as key, got 'E\\x00'", {"parameters": {"E\0": A}}),
            (r"parameters: the method has no 'q', which is an argument", {"parameters": {"q": A}}),
            (r"parameters: the method has no 'mask', which is an argument", {"parameters": {"mask": A}}),
        ]):
            with self.subTest(said), self.assertRaisesRegex(skytape.UsageError, said):
                call(**more)

    def test_an_option_that_is_an_enumerator_is_its_value(self):
        class Form(str, enum.Enum):
            SLIDING = "sliding"
        found, expected = (skytape.attention("local", A, A, A, block=5, form=form)
                           for form in (Form.SLIDING, "sliding"))
        self.assertTrue((found == expected).all())

    def test_masked_arrays_are_refused_by_name(self):
        hidden = skytape.arrays.np.ma.masked_array(A, A > 0)
        for i, argument in ((1, "q"), (3, "v"), (4, "mask")):
            call = ["softmax", A, A, A, A[:, 0, :, 0] > 0]
            call[i] = hidden if i < 4 else hidden[:, 0, :, 0] > 0
            with self.subTest(argument), self.assertRaisesRegex(
                    skytape.UsageError, f"{argument}: expected a plain array, got a masked one"):
                skytape.attention(*call)
        with self.assertRaisesRegex(skytape.UsageError, "array: expected a plain array, got a masked one"):
            skytape.Tape().input(hidden)

    @unittest.skipUnless(HAS_TORCH, "no PyTorch here")
    def test_sparse_and_nested_tensors_and_those_without_numbers_are_refused_by_name(self):
        t = torch.tensor(A)
        mask, nested = (torch.ones(1, 16, dtype=torch.bool),
                        torch.nested.nested_tensor([t[0], t[0, :, :5]]))
        for call in (skytape.attention, skytape.torch.attention):
            for q, m, said in (
                    (t.to_sparse(), mask, "q: expected a dense tensor, got one of layout torch.sparse_coo"),
                    (nested, mask, "q: expected a dense tensor, got a nested one"),
                    (t, mask.to_sparse(),
                     "mask: expected a dense tensor, got one of layout torch.sparse_coo")):
                with self.subTest(said), self.assertRaisesRegex(skytape.UsageError, said):
                    call("softmax", q, t, t, m)
        with self.assertRaisesRegex(skytape.UsageError, "v: expected a tensor with numbers, "
                                    "got one on the device meta"):
            skytape.attention("softmax", t, t, t.to("meta"))

    @unittest.skipUnless(HAS_JAX, "no JAX here")
    def test_jax(self):
        for i in range(6):
            good = ["softmax", A, A, A, None, 1]
            for each in WRONG:
                self.attempt(f"argument {i}", lambda: skytape.jax.attention(*good[:i], each, *good[i + 1:]))

    def test_stubs_are_python_and_have_the_operations_tape_and_var(self):
        folder, found = pathlib.Path(skytape.__file__).parent, {}
        for stub in sorted((folder / "_engine").glob("*.pyi")):
            for node in ast.parse(stub.read_text(encoding="utf-8")).body:
                if isinstance(node, (ast.ClassDef, ast.FunctionDef)):
                    found[node.name] = {each.name for each in getattr(node, "body", [])
                                        if isinstance(each, ast.FunctionDef)}
        self.assertTrue((folder / "py.typed").exists())
        for name in dir(ops):
            self.assertTrue(name.startswith("_") or name in found, name)
        for kind in (skytape.Tape, skytape.Var):
            for name in vars(kind):
                self.assertTrue(name.startswith("_") or name in found[kind.__name__],
                                f"{kind.__name__}.{name}")
        self.assertTrue({"__add__", "__rsub__", "__getitem__", "__pow__"} <= found["Var"])

    @unittest.skipUnless(importlib.util.find_spec("mypy"), "no mypy here")
    def test_mypy_knows_the_operations(self):
        with tempfile.TemporaryDirectory() as folder:
            script = pathlib.Path(folder, "script.py")
            script.write_text("from skytape import Dropout, Tape, ops\n"
                              "x = Tape().input([1.0])\n"
                              "ops.dropout(ops.exp(x), Dropout(0.1)).value\n"
                              "ops.exp()\n"
                              "ops.exq(x)\n"
                              "Dropout('a')\n", encoding="utf-8")
            found = subprocess.run(
                [sys.executable, "-m", "mypy", "--follow-imports=silent", "--ignore-missing-imports",
                 "--cache-dir", folder, script], capture_output=True, text=True,
                env={**os.environ, "MYPYPATH": str(pathlib.Path(skytape.__file__).parents[1])})
        self.assertEqual(re.findall(r"script\.py:(\d+): error", found.stdout), ["4", "5", "6"],
                         found.stdout + found.stderr)

    @unittest.skipUnless(importlib.util.find_spec("mypy"), "no mypy here")
    def test_mypy_strict_takes_a_users_program_and_knows_the_results(self):
        lines = {"import skytape": "",
                 "x = [[[[1.0]]]]": "",
                 "reveal_type(skytape.vjp('softmax', x, x, x, x))": "tuple[Any, dict[str, Any]]",
                 "reveal_type(skytape.draws('softmax', x, x, x))": "dict[str, Any]",
                 "reveal_type(skytape.methods()[0])": "dict[str, Any]",
                 "reveal_type(skytape.load('runs/a').predict(['b'])[0])": "list[str]",
                 "reveal_type(skytape.gradcheck(skytape.ops.exp, [[1.0]]))": "GradcheckReport",
                 "reveal_type(skytape.set_threads(2))": "None",
                 "skytape.attention(2, x, x, x)": "error"}
        with tempfile.TemporaryDirectory() as folder:
            script = pathlib.Path(folder, "script.py")
            script.write_text("\n".join(lines), encoding="utf-8")
            done = subprocess.run(
                [sys.executable, "-m", "mypy", "--strict", "--follow-imports=silent",
                 "--ignore-missing-imports", "--cache-dir", folder, script], capture_output=True, text=True,
                env={**os.environ, "MYPYPATH": str(pathlib.Path(skytape.__file__).parents[1])})
        said = dict(re.findall(r"script\.py:(\d+): (.*)", done.stdout))
        for number, (line, expected) in enumerate(lines.items(), 1):
            found = said.get(str(number), "")
            with self.subTest(line):
                self.assertTrue(expected in found and bool(expected) == bool(found)
                                and (expected == "error") == ("error" in found), found)

    def test_every_public_function_says_the_types_of_its_arguments_and_its_result(self):
        modules = [skytape, *([skytape.torch] if HAS_TORCH else []), *([skytape.jax] if HAS_JAX else [])]
        kinds = [skytape.Run] + [module.Attention for module in modules if hasattr(module, "Attention")]
        public = [skytape.attention, skytape.vjp, skytape.draws, skytape.set_threads, skytape.load,
                  skytape.results, skytape.curves, skytape.gradcheck,
                  *(module.attention for module in modules)]
        public += [each for kind in kinds for name, each in vars(kind).items()
                   if inspect.isfunction(each) and (name == "__init__" or name[0] != "_")]
        for each in public:
            with self.subTest(each.__qualname__, module=each.__module__):
                taken = inspect.signature(each)
                self.assertNotIn(inspect.Signature.empty, [
                    part.annotation for part in taken.parameters.values() if part.name != "self"])
                self.assertIsNot(taken.return_annotation, inspect.Signature.empty)
                self.assertTrue(each.__doc__ or each.__name__ == "__init__")

    def test_every_public_name_is_documented_and_listed(self):
        for name in skytape.__all__:
            self.assertTrue(inspect.getdoc(getattr(skytape, name)) or name in ("has_cuda",), name)
        self.assertIn("skytape.torch.Attention", skytape.__doc__)
        self.assertIn(f"version: {skytape.__version__}\n",
                      (pathlib.Path(__file__).parents[3] / "CITATION.cff").read_text())


class Arrays(unittest.TestCase):
    """Arrays of other kinds than float64, C-contiguous, in this machine's order."""
    def test_they_are_read_as_numpy_reads_them(self):
        class Named(np.ndarray):
            pass
        q = A.astype(np.float32)
        expected = skytape.attention("softmax", q, q, q)
        turned = np.ascontiguousarray(q.swapaxes(1, 2)).swapaxes(1, 2)
        frozen = q.copy()
        frozen.flags.writeable = False
        for what, array in {"big-endian": q.astype(">f4"), "subclass": q.view(Named),
                            "strided subclass": turned.view(Named), "strided": turned,
                            "reversed": q[:, ::-1][:, ::-1], "read-only": frozen,
                            "Fortran": np.asfortranarray(q)}.items():
            with self.subTest(what):
                found = skytape.attention("softmax", array, array, array)
                self.assertTrue((found == expected).all())
        self.assertLess(
            abs(skytape.attention("softmax", q.tolist(), q.tolist(), q.tolist()) - expected).max(), 1e-6)
        for order in "<>":
            half = skytape.attention("softmax", *[q.astype(f"{order}f2")] * 3)
            self.assertEqual(half.dtype, np.float16)
            self.assertLess(abs(half - expected).max(), 1e-2)
            tape = skytape.Tape()
            self.assertTrue((tape.input(q.astype(f"{order}f2")).value == q.astype(np.float16)).all())
            self.assertEqual(tape.input(np.arange(3, dtype=f"{order}i8")).value[2], 2)

    def test_numbers_of_more_than_64_bits_are_refused_by_name(self):
        if np.longdouble(0).itemsize == 8:
            self.skipTest("they do not exist here")
        with self.assertRaisesRegex(skytape.UsageError, r"real numbers of at most 64 bits, got .* \[2\]"):
            skytape.Tape().input(np.ones(2, np.longdouble))

    @unittest.skipUnless(HAS_TORCH, "no PyTorch here")
    def test_what_pytorch_negates_as_it_is_read_is_negated(self):
        lazy = [torch._neg_view(torch.tensor(A + i)) for i in range(4)]
        plain = [tensor.resolve_neg() for tensor in lazy]
        found, expected = (skytape.vjp("softmax", *tensors) for tensors in (lazy, plain))
        self.assertTrue((found[0] == expected[0]).all())
        for key in expected[1]:
            self.assertTrue((found[1][key] == expected[1][key]).all())
        tape = skytape.Tape()
        self.assertTrue((tape.input(lazy[0]).value == -A).all())

    @unittest.skipUnless(HAS_TORCH and HAS_JAX, "no PyTorch or no JAX here")
    def test_a_mask_may_be_of_another_library_than_the_arrays(self):
        q, mask = A.astype(np.float32), np.arange(16)[None] < 5
        expected, jnp = skytape.attention("softmax", q, q, q, mask), skytape.jax.jnp
        for of in (np.asarray, torch.tensor, jnp.asarray):
            for of_mask in (np.asarray, torch.tensor, jnp.asarray, np.ndarray.tolist):
                with self.subTest(of=of, of_mask=of_mask):
                    found = skytape.attention("softmax", of(q), of(q), of(q), of_mask(mask))
                    self.assertTrue((np.asarray(found) == expected).all())

    def test_what_comes_back_is_the_callers(self):
        for row in skytape.methods():
            q, k, v, dout = np.random.default_rng(1).standard_normal((4, 1, 2, 16, 8))
            x = np.random.default_rng(2).standard_normal((1, 16, 16)) if row["reads_x"] else None
            k = None if row["shared_qk"] else k
            out, gradients = skytape.vjp(row["name"], q, k, v, dout, x=x)
            arrays = {"out": out, **gradients, "given q": q, "given v": v, "given dout": dout}
            arrays |= {"given " + key: value for key, value in (("k", k), ("x", x)) if value is not None}
            names = list(arrays)
            for i, a in enumerate(names):
                self.assertTrue(arrays[a].flags.writeable, (row["name"], a))
                for b in names[i + 1:]:
                    self.assertFalse(arrays[a].size and np.shares_memory(arrays[a], arrays[b]),
                                     (row["name"], a, b))

    def test_values_on_a_tape_are_read_only_and_gradients_are_copies(self):
        tape, array = skytape.Tape(), np.ones(3)
        a, b = tape.input(array), tape.input(np.ones(3))
        for value in (a.value, (a * 2).value):
            with self.assertRaises(ValueError):
                value[0] = 5
        tape.backward(ops.sum_all(ops.square(a + b)))
        grads = [tape.grad(a), tape.grad(b)]
        for g in grads:
            g *= 0.5
        self.assertTrue(all((g == 2).all() for g in grads))
        self.assertTrue((tape.grad(a) == 4).all())

    def test_a_backward_that_changes_dy_changes_nothing_else(self):
        tape = skytape.Tape()
        x, z = tape.input(np.ones(3)), tape.input(np.ones(3))

        def back(dy):
            dy *= 100
            return [dy]
        y = tape.record("times_100", [x], x.value * 100, back)
        tape.backward(ops.sum_all(x + z + y))
        self.assertTrue((tape.grad(z) == 1).all())
        self.assertTrue((tape.grad(x) == 101).all())


class Empty(unittest.TestCase):
    def test_no_examples_or_no_tokens_give_empty_arrays_and_no_heads_an_error(self):
        for row in skytape.methods():
            for sizes in ((0, 2, 24, 8), (3, 2, 0, 8), (0, 2, 0, 8), (3, 0, 24, 8), (3, 2, 24, 0)):
                for training in (False, True):
                    with self.subTest(row["name"], sizes=sizes, training=training):
                        q = np.empty(sizes)
                        more = {"training": training,
                                "x": (np.empty((sizes[0], sizes[2], sizes[1] * sizes[3]))
                                      if row["reads_x"] else None)}
                        given = (q, None if row["shared_qk"] else q, q)
                        if sizes[1] * sizes[3] == 0:
                            with self.assertRaisesRegex(skytape.UsageError, "v: expected heads and a width"):
                                skytape.vjp(row["name"], *given, q, **more)
                            continue
                        out, gradients = skytape.vjp(row["name"], *given, q, **more)
                        self.assertEqual((out.shape, gradients["v"].shape), (sizes, sizes))
                        self.assertEqual(sum(abs(value).sum() for value in gradients.values()), 0)
                        skytape.draws(row["name"], *given, **more)


class Draws(unittest.TestCase):
    def test_wrong_names_sizes_types_and_indices_are_errors(self):
        for row in skytape.methods():
            for options in row["samples"]:
                q, k, v = np.random.default_rng(1).standard_normal((3, 2, 2, 64, 8))
                more = {**options, "x": np.ones((2, 64, 16)) if row["reads_x"] else None, "training": True}
                k = None if row["shared_qk"] else k
                try:
                    given = skytape.draws(row["name"], q, k, v, seed=5, **more)
                except skytape.UsageError:
                    continue

                own, _ = skytape._engine.initial(row["name"], options, 2, 8, 64, 16, 3)
                more["parameters"] = {key: value for key, value, _ in own} or None

                def call(draws):
                    return skytape.attention(row["name"], q, k, v, seed=9, draws=draws, **more)
                with self.subTest(row["name"], **options):
                    if given:
                        self.assertTrue(
                            (call(given) == skytape.attention(row["name"], q, k, v, seed=5, **more)).all()
                            or "dropout" in str(row["options"]))
                    for wrong in ({"nosuch": np.ones(3)}, {**given, "nosuch": np.ones(3)},
                                  *({key + "_": value} for key, value in given.items())):
                        with self.assertRaisesRegex(skytape.Error, "draws"):
                            call(wrong)
                    for key, value in given.items():
                        try:
                            found = call({**given, key: value.astype(
                                np.float64 if value.dtype == np.int32 else np.int32)})
                        except skytape.Error:
                            continue
                        self.assertTrue((found == call(given)).all(), key)  # nothing reads it in this setting
                    for key, value in given.items():
                        if value.dtype == np.int32:
                            for off in (64, 10**4, 10**9, -10**4):
                                with self.assertRaisesRegex(skytape.Error, "outside"):
                                    call({**given, key: value + np.int32(2 * off)})


class Tapes(unittest.TestCase):
    def test_two_threads_on_one_tape_are_an_error(self):
        import threading
        tape = skytape.Tape()
        q, errors = tape.input(np.ones((200, 200))), []

        def work():
            try:
                y = q
                for _ in range(300):
                    y = ops.matmul(y, q)
            except skytape.Error as error:
                errors.append(str(error))
        threads = [threading.Thread(target=work) for _ in range(4)]
        [thread.start() for thread in threads]
        [thread.join() for thread in threads]
        self.assertTrue(errors and all("another thread" in error for error in errors), errors)

    def test_a_tape_that_another_thread_uses_is_not_read(self):
        import threading
        began, ended = threading.Event(), threading.Event()

        def backward(dy):
            began.set()
            ended.wait(60)
            return [dy]
        tape = skytape.Tape()
        y = ops.sum_all(tape.record("waits", [tape.input(A)], A, backward))
        thread = threading.Thread(target=tape.backward, args=(y,))
        thread.start()
        began.wait(60)
        try:
            for read in (len, str, skytape.Tape.dot):
                with self.subTest(read.__name__), self.assertRaisesRegex(skytape.Error, "another thread"):
                    read(tape)
        finally:
            ended.set()
            thread.join()
        self.assertEqual(len(tape), 3)

    def test_operations_of_ones_own_take_as_long_on_a_long_tape(self):
        def seconds(count):
            tape, start = skytape.Tape(), time.process_time()
            y = tape.input(np.ones(1))
            for _ in range(count):
                y = tape.record("own", [y], y.value, lambda dy: [dy])
            return time.process_time() - start
        self.assertLess(seconds(12000), 60 * max(min(seconds(1000) for _ in range(3)), 0.002))

    def test_a_tape_that_never_ran_is_collected(self):
        import gc
        import weakref

        class Op:
            def __init__(self, tape):
                self.tape, self.y = tape, tape.record("twice", [tape.input(A)], A * 2, self.back)

            def back(self, dy):
                return [dy * 2]
        op = Op(skytape.Tape())
        gone = weakref.ref(op)
        del op
        gc.collect()
        self.assertIsNone(gone())

    def test_arithmetic_is_numpys(self):
        tape, x = skytape.Tape(), np.random.default_rng(0).random((3, 4, 5)) + 0.5
        v = tape.input(x)
        row = np.arange(1.0, 6)
        for what, ours, numpys in [
            ("array * Var", row * v, row * x), ("Var - list", v - [1, 2, 3, 4, 5], x - [1, 2, 3, 4, 5]),
            ("list / Var", [1.0] * 5 / v, [1.0] * 5 / x),
            ("np.float32", np.float32(2) * v + np.int64(1), 2 * x + 1), ("0-d", v / np.array(2.0), x / 2),
            ("**2", v**2, x**2), ("**3", v**3, x**3), ("**-2", v**-2, x**-2.0), ("**0.5", v**0.5, x**0.5),
            ("**1.5", v**1.5, x**1.5), ("2**", 2**v, 2**x), ("**Var", v**v, x**x), ("**0", v**0, x**0),
            ("[1]", v[1], x[1]), ("[-1, 1:3]", v[-1, 1:3], x[-1, 1:3]), ("[..., 2:]", v[..., 2:], x[..., 2:]),
            ("[None]", v[None, :, 0], x[None, :, 0]), ("sum", v.sum(), x.sum()),
            ("sum 1", v.sum(1), x.sum(1)), ("mean", v.mean((0, -1)), x.mean((0, -1))),
            ("keepdims", v.sum(-1, keepdims=True), x.sum(-1, keepdims=True)), ("T", v[0].T, x[0].T),
            ("reshape", v.reshape(4, 15), x.reshape(4, 15)),
        ]:
            with self.subTest(what):
                self.assertEqual(ours.shape, numpys.shape)
                self.assertLess(abs(ours.value - numpys).max(), 1e-12)
        with self.assertRaisesRegex(TypeError, "compare its array"):
            v < 3
        self.assertIn("[3, 4, 5]", repr(v))
        self.assertTrue(skytape.gradcheck(lambda a: (a[1:, 0] ** 3).sum(0) * [1.0, 2, 3, 4, 5], [x]))


# Forks while other threads allocate: a child waited for ever for a lock that one of them had.
FORKS_OF_THREADS = """
import os, signal, sys, threading, numpy as np, skytape
skytape.set_threads(1)
sys.setswitchinterval(1e-4)
q = np.ones((1, 2, 64, 8), "f4")

def call():
    skytape.vjp("skyformer", q, q, q, q, features=8)

def repeat():
    while True:
        call()

call()  # what is imported late is here
for _ in range(3):
    threading.Thread(target=repeat, daemon=True).start()
for _ in range(100):
    child = os.fork()
    if child == 0:
        signal.alarm(60)
        call()
        os._exit(0)
    if os.waitpid(child, 0)[1] != 0:
        os._exit(3)
os._exit(0)
"""


class Process(unittest.TestCase):
    def run_text(self, text, *options):
        done = subprocess.run([sys.executable, *options, "-c", text], capture_output=True, text=True,
                              timeout=120)
        return done.returncode, done.stdout + done.stderr

    def test_a_daemon_thread_at_the_end_does_not_abort(self):
        code, said = self.run_text("import threading, time, numpy as np, skytape\n"
                                   "q = np.ones((1, 2, 2048, 32), 'f4')\n"
                                   "def work():\n    while True: skytape.attention('softmax', q, q, q)\n"
                                   "threading.Thread(target=work, daemon=True).start(); time.sleep(0.3)")
        self.assertEqual((code, said), (0, ""))

    def interrupted(self, text, seconds=2):
        """What the script says when it is interrupted after it has said "begun", and its exit status. Both
        come within so many seconds."""
        # Who started the tests in the background may have had the signal ignored.
        child = subprocess.Popen([sys.executable, "-c", text], stdout=subprocess.PIPE,
                                 stderr=subprocess.STDOUT, text=True,
                                 preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL))
        said = ""
        while not said.endswith("begun\n"):
            line = child.stdout.readline()
            self.assertTrue(line, said)
            said += line
        time.sleep(0.5)
        start = time.perf_counter()
        child.send_signal(signal.SIGINT)
        said = child.communicate()[0]
        self.assertLess(time.perf_counter() - start, seconds, said)
        return said, child.returncode

    def test_ctrl_c_ends_a_long_call_within_a_second(self):
        long = ("import numpy as np, skytape\nq = np.ones((1, 8, 65536, 32), 'f4')\n"
                "print('begun', flush=True)\n")
        caught = ("try: skytape.attention('softmax', q, q, q)\n"
                  "except KeyboardInterrupt: print('interrupted', flush=True)\n")
        self.assertEqual(self.interrupted(long + caught), ("interrupted\n", 0))
        self.assertEqual(self.interrupted(long + caught + "raise SystemExit(3)"), ("interrupted\n", 3))
        said, code = self.interrupted(long + "skytape.attention('softmax', q, q, q)")
        self.assertIn("KeyboardInterrupt", said)
        self.assertEqual(code, -signal.SIGINT)

    def test_ctrl_c_ends_a_long_backward_within_a_second(self):
        said, code = self.interrupted("import numpy as np, skytape\nfrom skytape import waiting\n"
                                      "attending = waiting.attending\n"
                                      "def announced(v, function, *arguments):\n"
                                      "    if arguments[0].__class__ is dict: print('begun', flush=True)\n"
                                      "    return attending(v, function, *arguments)\n"
                                      "waiting.attending, q = announced, np.ones((1, 4, 24576, 32), 'f4')\n"
                                      "skytape.vjp('softmax', q, q, q, q)")
        self.assertEqual((said.splitlines()[-1], code), ("KeyboardInterrupt", -signal.SIGINT))

    @unittest.skipUnless(HAS_TORCH, "no PyTorch here")
    def test_ctrl_c_ends_long_calls_of_pytorch_within_a_second(self):
        start = "import skytape, torch, skytape.torch\nq = torch.ones(1, 4, 24576, 32).requires_grad_()\n"
        for text in ("print('begun', flush=True)\nskytape.torch.attention('softmax', q, q, q)",
                     "out = skytape.torch.attention('softmax', q, q, q).sum()\nprint('begun', flush=True)\n"
                     "out.backward()"):
            said, code = self.interrupted(start + text, 5)  # PyTorch's own end takes a second or two
            self.assertEqual((said.splitlines()[-1], code), ("KeyboardInterrupt", -signal.SIGINT))

    def test_a_long_call_has_as_many_threads_as_its_caller(self):
        before = skytape._engine.threads()
        self.addCleanup(skytape.set_threads, before)
        skytape.set_threads(before + 2)
        self.assertEqual(skytape.waiting.interruptible(skytape._engine.threads), before + 2)

    def test_a_child_made_by_fork_computes(self):
        code, said = self.run_text("import multiprocessing, os, sys, numpy as np\n"
                                   "os.environ['OMP_NUM_THREADS'] = '2'\n"
                                   "import skytape\nskytape.set_threads(2)\n"
                                   "q, long = np.ones((4, 2, 512, 32), 'f4'), "
                                   "np.ones((1, 1, 1 << 15, 32), 'f4')\n"
                                   "def work():\n    skytape.attention('softmax', q, q, q)\n"
                                   "    skytape.attention('vmean', long, long, long)\n"
                                   "    skytape.vjp('skyformer', q, q, q, q)\n"
                                   "work()\n"
                                   "child = multiprocessing.get_context('fork').Process(target=work)\n"
                                   "child.start(); child.join(60)\n"
                                   "sys.exit(child.exitcode != 0)")
        self.assertEqual(code, 0, said)
        # From 3.12 on Python warns of every fork of a process with threads.
        self.assertEqual(self.run_text(FORKS_OF_THREADS, "-W", "ignore::DeprecationWarning"), (0, ""))
        code, said = self.run_text("import os, skytape\n"
                                   "if os.fork() == 0:\n    try: skytape.set_threads(2)\n"
                                   "    except skytape.UsageError: os._exit(3)\n    os._exit(0)\n"
                                   "import sys; sys.exit(os.waitstatus_to_exitcode(os.wait()[1]))")
        self.assertEqual(code, 3, said)


class Folders(unittest.TestCase):
    def test_broken_runs_are_left_out_by_name_and_absent_folders_are_errors(self):
        with tempfile.TemporaryDirectory() as scratch:
            root = pathlib.Path(scratch)
            for name, text in (("a", '{"task": "lis'), ("b", '{"task": "listops"}'), ("c", "[1]"), ("d", "")):
                (root / name).mkdir()
                (root / name / "config.json").write_text(text)
            (root / "b" / "result.json").write_text(json.dumps({"label": "好"}, ensure_ascii=False),
                                                    encoding="utf-8")
            with warnings.catch_warnings(record=True) as said:
                warnings.simplefilter("always")
                rows = skytape.results(scratch)
            self.assertEqual([row["run"] for row in rows], [str(root / "b")])
            self.assertEqual(rows[0]["label"], "好")
            self.assertEqual([str(root / name) in str(each.message) for name, each in zip("acd", said)],
                             [True] * 3)
            for function in (skytape.results, skytape.curves):
                with self.assertRaisesRegex(skytape.DataError, "no folder"):
                    function(root / "nowhere")
