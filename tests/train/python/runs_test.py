"""Trained runs: the module answers as the program does."""
import os
import pathlib
import subprocess
import tempfile
import unittest

import numpy as np

import skytape

PROGRAM = pathlib.Path(os.environ.get("SKYTAPE_PROGRAM", "build/skytape")).absolute()


class ByTheProgram(unittest.TestCase):
    """A folder for what the program makes."""
    @classmethod
    def setUpClass(cls):
        if not PROGRAM.exists():
            raise unittest.SkipTest("no program build/skytape here")
        scratch = tempfile.TemporaryDirectory()
        cls.addClassCleanup(scratch.cleanup)
        cls.folder = pathlib.Path(scratch.name)

    @classmethod
    def program(cls, *arguments):
        return subprocess.run([PROGRAM, *arguments], cwd=cls.folder, check=True, capture_output=True, text=True).stdout


class Runs(ByTheProgram):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        words = {"good": "fine bright warm", "bad": "dull cold grey"}
        rows = [f"{label}\tday {i} {words[label]}" for i in range(50) for label in words]
        (cls.folder / "rows.tsv").write_text("\n".join(rows) + "\n")
        cls.program("data", "--task", "tsv", "--from", "rows.tsv")
        cls.program("train", "--task", "tsv", "--attention", "softmax", "--steps", "4",
                    "--recipe", "skyformer", "--batch", "8", "--set", "max_length=64", "--out", "runs/a")

    def test_predictions_are_the_programs(self):
        texts = ["day 3 fine", "day 4 cold and grey and long"]
        (self.folder / "texts.txt").write_text("\n".join(texts) + "\n")
        said = self.program("predict", "--run", "runs/a", "--from", "texts.txt", "--scores").split("\n")
        run = skytape.load(self.folder / "runs/a")
        labels, probabilities = run.predict(texts)
        self.assertEqual(said[0].split("\t")[1:], run.labels)
        for label, row, line in zip(labels, probabilities, said[1:]):
            self.assertEqual(line, "\t".join([label, *(f"{p:.6f}" for p in row)]))

    def test_encodings_and_maps_are_of_the_texts_tokens(self):
        run = skytape.load(self.folder / "runs/a")
        encoding, mask = run.encode(["day 3", "fine"])
        self.assertEqual(encoding.shape[:2], mask.shape)
        self.assertEqual(abs(encoding[1][mask[1] == 0]).sum(), 0)
        maps = run.attention_maps("day 3 fine")
        self.assertEqual(len(maps), 2)
        self.assertLess(abs(maps[0].sum(-1) - 1).max(), 1e-4)

    def test_results_are_rows_and_curves(self):
        row, = skytape.results(self.folder)
        self.assertEqual(row["attention"], "softmax")
        self.assertIn("test_accuracy", " ".join(row))
        self.assertEqual(skytape.curves(self.folder / "runs/a")[-1]["kind"], "final")

    def test_what_is_no_run_is_an_exception(self):
        with self.assertRaisesRegex(skytape.DataError, "nowhere"):
            skytape.load("nowhere")
