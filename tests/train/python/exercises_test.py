"""The notebooks of exercises: as they are they say what is wrong, and with the solution they are solved."""
import contextlib
import io
import json
import pathlib
import unittest

ROOT = pathlib.Path(__file__).parents[3]
NOTEBOOKS = sorted((ROOT / "train/python/notebooks").glob("exercise_*.ipynb"))
MARK = "# your part"


def run(notebook, part=None):
    """Returns whether the notebook says that it is solved, and its output; `part` replaces the cell to
    write."""
    names, said = {"__name__": "__main__"}, io.StringIO()
    with contextlib.redirect_stdout(said):
        for cell in json.loads(notebook.read_text(encoding="utf-8"))["cells"]:
            source = "".join(cell["source"])
            if cell["cell_type"] == "code":
                exec(part if part and MARK in source else source, names)
    return names["solved"], said.getvalue()


class Exercises(unittest.TestCase):
    def test_there_are_four(self):
        self.assertEqual([notebook.stem.split("_")[1] for notebook in NOTEBOOKS], ["01", "04", "07", "08"])

    def test_unwritten_ones_say_what_is_wrong(self):
        for notebook in NOTEBOOKS:
            with self.subTest(notebook.name):
                solved, said = run(notebook)
                self.assertFalse(solved)
                self.assertRegex(said, "(?s)FAILED.*Not yet: ")

    def test_solutions_are_accepted(self):
        for notebook in NOTEBOOKS:
            with self.subTest(notebook.name):
                part = ROOT / "tests/exercises/solutions" / f"{notebook.stem.removeprefix('exercise_')}.py"
                solved, said = run(notebook, part.read_text(encoding="utf-8"))
                self.assertTrue(solved, said)

    def test_usual_mistakes_are_refused(self):
        mistakes = {"01": ("dy * (s + x * s * (1 - s))", "dy * s"),
                    "04": ("(dy - np.sum(y * dy, axis=-1, keepdims=True))", "dy"),
                    "07": ("scale * ds.T @ q", "ds.T @ q"), "08": ("s * v @ dt.T", "s * v @ dt")}
        for notebook in NOTEBOOKS:
            with self.subTest(notebook.name):
                part = ROOT / "tests/exercises/solutions" / f"{notebook.stem.removeprefix('exercise_')}.py"
                right, wrong = mistakes[notebook.stem.split("_")[1]]
                source = part.read_text(encoding="utf-8")
                self.assertIn(right, source)
                self.assertFalse(run(notebook, source.replace(right, wrong))[0])

    def test_a_backward_that_writes_into_what_forward_kept_is_refused(self):
        for name, line in {"04_softmax_backward": "    return y *", "07_attention_backward": "    ds = p *"}.items():
            with self.subTest(name):
                source = (ROOT / f"tests/exercises/solutions/{name}.py").read_text(encoding="utf-8")
                self.assertIn(line, source)
                notebook = ROOT / f"train/python/notebooks/exercise_{name}.ipynb"
                with self.assertRaisesRegex(ValueError, "read-only"):
                    run(notebook, source.replace(line, f"    {line[-3]} *= 2\n{line}"))

    def test_a_backward_that_forms_n_by_m_is_refused(self):
        notebook = next(notebook for notebook in NOTEBOOKS if "_08_" in notebook.name)
        solution = ROOT / "tests/exercises/solutions/08_linear_attention.py"
        orders = solution.read_text(encoding="utf-8").split("def backward")[0]
        solved, said = run(notebook, orders + """
def backward(q, k, v, s, dout):
    w, dw = s * (q @ k.T), s * (dout @ v.T)
    return dw @ k, dw.T @ q, w.T @ dout
""")
        self.assertFalse(solved)
        self.assertRegex(said, r"(?s)gradcheck passed.*Not yet: at N = M = 2000 backward takes \d+ MB")
