"""The tape: operations by their header's names, operators, gradcheck, operations written in Python."""
import pathlib
import re
import shutil
import unittest

import numpy as np

import skytape
from skytape import ops

ROOT = pathlib.Path(__file__).parents[3]
random = np.random.default_rng(0)
A, C = random.standard_normal((3, 4)), random.standard_normal((3, 4))
W = random.standard_normal((4, 2))


class Tapes(unittest.TestCase):
    def test_every_operation_of_the_header_is_there(self):
        header = (ROOT / "autograd/ops.hpp").read_text()
        declared = set(re.findall(r"Var (\w+)\(", header)) - {"operator", "norm_pool"}
        self.assertGreater(len(declared), 25)
        self.assertEqual(declared, {name for name in dir(ops) if not name.startswith("_")})

    def test_operators_are_those_of_numbers(self):
        tape = skytape.Tape()
        a, c, w = tape.input(A), tape.input(C), tape.constant(W)
        found = ((a + c) * a - c / (a * a + 2) + 1 - 3 * a + (2 - a) / 4 + 1 / (c * c + 1) - a) @ w
        expected = ((A + C) * A - C / (A * A + 2) + 1 - 3 * A + (2 - A) / 4 + 1 / (C * C + 1) - A) @ W
        self.assertLess(abs(found.value - expected).max(), 1e-12)
        self.assertEqual(found.shape, (3, 2))

    def test_powers_need_a_positive_base_where_the_exponent_is_an_array(self):
        tape = skytape.Tape()
        x, positive = tape.input(np.array([-2.0, 0.0, 3.0])), tape.input(np.array([0.5, 2.0, 3.0]))
        self.assertLess(abs((positive ** np.array([2.0, 3.0, -1.0])).value - [0.25, 8, 1 / 3]).max(), 1e-12)
        self.assertEqual(list((x ** 2).value), [4, 0, 9])
        self.assertLess(abs((2 ** x).value - [0.25, 1, 8]).max(), 1e-12)
        for call in (lambda: x ** np.array([2.0, 2.0, 2.0]), lambda: x ** x, lambda: 0 ** x,
                     lambda: (-2) ** x):
            with self.assertRaisesRegex(skytape.UsageError, "the base must be positive"):
                call()

    def test_powers_of_negative_numbers_of_zero_and_of_large_ones(self):
        nan, inf = np.nan, np.inf
        for exponent, values, slopes in [  # at -2, 0, 0.25 and 1e20
            (3, [-8, 0, 1 / 64, inf], [12, 0, 3 / 16, inf]),
            (1.5, [nan, 0, 1 / 8, 1e30], [nan, 0, 3 / 4, 1.5e10]),
            (0.5, [nan, 0, 1 / 2, 1e10], [nan, inf, 1, 0.5e-10]),
            (0.25, [nan, 0, 0.25**0.25, 1e5], [nan, inf, 0.25**0.25, 0.25e-15]),
            (0, [1, 1, 1, 1], [0, 0, 0, 0]),
            (-3, [-1 / 8, inf, 64, 0], [-3 / 16, -inf, -768, 0]),
        ]:
            with self.subTest(exponent):
                tape = skytape.Tape()
                x = tape.input(np.array([-2, 0, 0.25, 1e20], "f4"))
                power = x ** exponent
                np.testing.assert_allclose(power.value, np.array(values, "f4"), 1e-6)
                tape.backward(ops.sum_all(power))
                np.testing.assert_allclose(tape.grad(x), np.array(slopes, "f4"), 1e-6)
        self.assertTrue(skytape.gradcheck(lambda x: (x * x) ** -1.7, [A]))
        tape = skytape.Tape()
        self.assertEqual((tape.input(np.float32(4)) ** 1.5).value, 8)

    def test_powers_need_a_finite_exponent(self):
        x = skytape.Tape().input(np.ones(3))
        for exponent in (np.inf, -np.inf, np.nan):
            with self.assertRaisesRegex(skytape.UsageError, r"\*\*: expected a finite number or an array "
                                        rf"as exponent, got {exponent}$"):
                x ** exponent

    def test_whole_numbers_of_any_width_and_half_precision_are_taken(self):
        tape = skytape.Tape()
        x = tape.input(A)
        for kind in ("i1", "i2", "i4", "i8", "u1"):
            self.assertTrue((ops.gather_rows(x, np.array([0, 2], kind)).value == A[[0, 2]]).all(), kind)
        self.assertEqual(tape.input(A.astype("f2")).dtype, np.float32)
        for kind in ("i8", "u8"):
            with self.assertRaisesRegex(skytape.UsageError, "array: expected whole numbers of 32 bits, "
                                        "got 0 to 1099511627776"):
                ops.gather_rows(x, np.array([0, 1 << 40], kind))
        self.assertTrue(((x + np.array(1 << 40)).value == A + (1 << 40)).all())

    def test_a_value_is_iterated_by_rows_and_is_no_array(self):
        tape = skytape.Tape()
        x = tape.input(A)
        first, second, third = x
        self.assertTrue((second.value == A[1]).all() and len(list(x)) == 3)
        with self.assertRaisesRegex(skytape.UsageError, "take its array, x.value"):
            np.asarray(x)

    def test_true_is_no_index(self):
        tape = skytape.Tape()
        x = tape.input(A)
        with self.assertRaisesRegex(skytape.UsageError, "whole numbers and slices as indices, got bool"):
            x[True]

    def test_arrays_and_values_are_no_indices(self):
        tape = skytape.Tape()
        x = tape.input(np.ones((2, 3)))
        for part in (np.array([0, 1]), tape.input(np.ones(2))):
            for index in (part, (part, ...), (..., part)):
                with self.assertRaisesRegex(skytape.UsageError, "whole numbers and slices as indices, got "):
                    x[index]

    def test_gradients_go_back_to_inputs(self):
        tape = skytape.Tape()
        a, c = tape.input(A), tape.constant(C)
        tape.backward(ops.sum_all(ops.square(a - c)))
        self.assertLess(abs(tape.grad(a) - 2 * (A - C)).max(), 1e-12)
        with self.assertRaisesRegex(skytape.Error, "runs once per tape"):
            tape.backward(a)

    def test_a_recorded_value_stays_when_its_array_changes(self):
        tape, value = skytape.Tape(), A.copy()
        x = tape.record("mine", [tape.input(A)], value, lambda dy: [dy])
        value[:] = 7
        self.assertTrue((x.value == A).all())

    def test_gradients_stay_when_arrays_that_backward_was_given_change(self):
        tape, shared = skytape.Tape(), np.empty(2)

        def times(factor, x):
            return tape.record("times", [x], factor * x.value,
                               lambda dy: [np.multiply(factor, dy, out=shared)])
        x, y = tape.input(np.ones(2)), tape.input(np.ones(2))
        cotangent = np.array([1., 10])
        tape.backward(times(2, x) + times(5, y), cotangent)
        np.testing.assert_array_equal([tape.grad(x), tape.grad(y)], [[2, 20], [5, 50]])
        tape = skytape.Tape()
        x = tape.input(np.ones(2))
        tape.backward(x + 1, cotangent)
        cotangent[:] = 3
        np.testing.assert_array_equal(tape.grad(x), [1, 10])

    def test_gradcheck_passes_right_gradients_and_finds_wrong_ones(self):
        def cube(x, factor):
            value = x.value
            return x.tape.record("cube", [x], value**3, lambda dy: [factor * value**2 * dy])
        self.assertTrue(skytape.gradcheck(lambda x: cube(x, 3), [A]))
        report = skytape.gradcheck(lambda x: cube(x, 2), [A])
        self.assertFalse(report)
        self.assertRegex(repr(report), "FAILED")
        self.assertTrue(skytape.gradcheck(lambda x, w: ops.softmax(x @ w), [A, W]))
        self.assertTrue(skytape.gradcheck(lambda x: ops.gelu(ops.sum(x, axis=1, keep=True)), [A]))

    def test_gradcheck_obeys_its_tolerance_and_its_seed(self):
        def nearly(x):
            value = x.value
            return x.tape.record("nearly", [x], value**3, lambda dy: [3.01 * value**2 * dy])
        self.assertFalse(skytape.gradcheck(nearly, [A], 1e-3))
        self.assertTrue(skytape.gradcheck(nearly, [A], tolerance=0.5))
        self.assertFalse(skytape.gradcheck(lambda x: x * x * x, [A], tolerance=1e-16))
        reports = [repr(skytape.gradcheck(nearly, [A], seed=seed)) for seed in (5, 5, 6)]
        self.assertEqual(reports[0], reports[1])
        self.assertNotEqual(reports[0], reports[2])

    def test_dropout_obeys_its_rate_and_its_seed(self):
        def dropped(rate, seed):
            tape = skytape.Tape()
            return ops.dropout(tape.input(np.ones((2, 50, 80))), skytape.Dropout(rate, seed)).value
        first = dropped(0.3, 5)
        self.assertLess(abs((first == 0).mean() - 0.3), 0.03)
        self.assertTrue((first == dropped(0.3, 5)).all())
        self.assertFalse((first == dropped(0.3, 6)).all())

    def test_a_mistake_in_python_is_an_exception_there(self):
        tape = skytape.Tape()
        a = tape.input(A)
        with self.assertRaisesRegex(skytape.Error, r"matmul: .*float64 \[3, 4\]"):
            a @ a
        with self.assertRaisesRegex(ZeroDivisionError, "mine"):
            def fails(dy):
                raise ZeroDivisionError("mine")
            tape.backward(ops.sum_all(tape.record("mine", [a], A, fails)))
        with self.assertRaisesRegex(skytape.Error, "its Tape is gone"):
            skytape.Tape().input(A).value

    def test_errors_say_what_a_function_takes(self):
        tape = skytape.Tape()
        for call, said in [
            (lambda: tape.input(), "Tape.input: expected (array: Array), got ()"),
            (lambda: tape.input(1, b=2), "Tape.input: expected (array: Array), got (int, b=int)"),
            (lambda: tape.dot(1), "Tape.dot: expected (title: str = '', merge: bool = False), got (int)"),
            (lambda: tape.grad(A), "Tape.grad: expected (input: skytape._engine.Var), got (float64 [3, 4])"),
            (lambda: skytape.Dropout(), "Dropout: expected (rate: float, seed: int = 0), got ()"),
            (lambda: skytape.Dropout("a"), "Dropout: expected (rate: float, seed: int = 0), got (str)"),
            (lambda: ops.exp(A), "exp: expected (x: skytape._engine.Var), got (float64 [3, 4])"),
        ]:
            with self.subTest(said), self.assertRaisesRegex(skytape.UsageError, re.escape(said) + "$"):
                call()

    @unittest.skipUnless(shutil.which("dot"), "no Graphviz here")
    def test_a_tape_is_drawn(self):
        tape = skytape.Tape()
        ops.softmax(tape.input(A) @ tape.constant(W))
        drawing = tape.draw()._repr_svg_()
        for word in ("<svg", "matmul", "softmax"):
            self.assertIn(word, drawing)
