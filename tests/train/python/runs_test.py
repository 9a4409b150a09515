"""Trained runs: the module answers as the program does. No setting here is a default."""
import json
import os
import pathlib
import subprocess
import tempfile
import threading
import unittest

import numpy as np

import skytape

PROGRAM = pathlib.Path(os.environ.get("SKYTAPE_PROGRAM", "build/skytape")).absolute()
LABORATORY = PROGRAM.with_name("skytape-lab")


def weights(file):
    """Returns the arrays of a file of safetensors, by name."""
    data = file.read_bytes()
    begin = 8 + int.from_bytes(data[:8], "little")
    header = json.loads(data[8:begin])
    header.pop("__metadata__", None)
    return {name: np.frombuffer(data[begin + each["data_offsets"][0]:begin + each["data_offsets"][1]], "<f4")
            .reshape(each["shape"]) for name, each in header.items() if each["dtype"] == "F32"}


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
    def program(cls, *arguments, program=PROGRAM):
        return subprocess.run([program, *arguments], cwd=cls.folder, check=True, capture_output=True,
                              text=True).stdout


class Runs(ByTheProgram):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        words = {"good": "fine bright warm", "bad": "dull cold grey"}
        rows = [f"{label}\tday {i} {words[label]}" for i in range(50) for label in words]
        (cls.folder / "rows.tsv").write_text("\n".join(rows) + "\n")
        cls.program("data", "--task", "tsv", "--from", "rows.tsv")
        for name, method in (("a", "softmax"), ("drawn", "skyformer")):
            features = ["--features", "3"] if name == "drawn" else []
            cls.program("train", "--task", "tsv", "--attention", method, "--steps", "4", "--seed", "7",
                        *features, "--recipe", "skyformer", "--batch", "8", "--set", "max_length=64",
                        "--out", f"runs/{name}")

    def test_predictions_are_the_programs(self):
        texts = ["day 3 fine", "day 4 cold and grey and long"]
        (self.folder / "texts.txt").write_text("\n".join(texts) + "\n")
        found = {}
        for name, draws in (("a", 1), ("drawn", 1), ("drawn", 3)):
            with self.subTest(name, draws=draws):
                said = self.program("predict", "--run", f"runs/{name}", "--from", "texts.txt", "--scores",
                                    "--draws", str(draws)).split("\n")
                run = skytape.load(self.folder / "runs" / name)
                labels, found[name, draws] = run.predict(texts, draws=draws)
                columns = said[0].split("\t")
                for label, row, line in zip(labels, found[name, draws], said[1:]):
                    answer = dict(zip(columns, line.split("\t")))
                    self.assertEqual((answer[columns[0]], *(answer[each] for each in run.labels)),
                                     (label, *(f"{p:.6f}" for p in row)))
        self.assertGreater(abs(found["drawn", 1] - found["drawn", 3]).max(), 1e-6)  # a setting that tells

    @unittest.skipUnless(LABORATORY.exists(), "no program build/skytape-lab here: make lab")
    def test_maps_are_the_laboratorys_at_every_layer_and_head(self):
        run, text = skytape.load(self.folder / "runs/drawn"), "day 3 fine and bright"
        maps = run.attention_maps(text)
        for layer in range(2):
            for head in range(2):
                with self.subTest(layer=layer, head=head):
                    self.program("matrix", "--run", "runs/drawn", "--sentence", text, "--attention", "vmean",
                                 "--layer", str(layer), "--head", str(head), "--seed", "9",
                                 "--out", f"matrix{layer}{head}", program=LABORATORY)
                    study, = (self.folder / f"matrix{layer}{head}").glob("*.json")
                    matrices = json.loads(study.read_text(encoding="utf-8"))["details"]["results"]
                    own, = (each for each in matrices if each["method"] == "skyformer (trained)")
                    self.assertLess(abs(maps[layer][head] - np.array(own["matrix"])).max(), 1e-5)
        self.assertGreater(abs(maps[0][0] - maps[0][1]).max(), 1e-3)

    def test_encodings_and_maps_are_of_the_texts_tokens(self):
        run = skytape.load(self.folder / "runs/a")
        encoding, mask = run.encode(["day 3", "fine"])
        self.assertEqual(encoding.shape[:2], mask.shape)
        self.assertEqual(list(mask.sum(1)), [len("day 3"), len("fine")])
        self.assertEqual(abs(encoding[1][~mask[1]]).sum(), 0)
        x = encoding[:, None]  # [B, 1, N, E]
        self.assertTrue((skytape.attention("softmax", x, x, x, mask=mask)[1, :, 0] !=
                         skytape.attention("softmax", x, x, x)[1, :, 0]).any())
        self.assertEqual(run.encode([])[1].dtype, bool)
        maps = run.attention_maps("day 3 fine")
        self.assertEqual(len(maps), 2)
        self.assertLess(abs(maps[0].sum(-1) - 1).max(), 1e-4)

    def test_encodings_go_through_the_classifier_to_predictions(self):
        run, texts = skytape.load(self.folder / "runs/drawn"), ["day 3 fine", "day 4 cold and grey and long"]
        saved = weights(self.folder / "runs/drawn/best.safetensors")
        encoding, _ = run.encode(texts)  # [B, N, E], of max_length = 64 nominal tokens
        first, last = ((saved[f"seq_classifer.mlpblock.{i}.weight"].T,
                        saved[f"seq_classifer.mlpblock.{i}.bias"]) for i in (0, 2))
        hidden = np.maximum(encoding.sum(1) / 64 @ first[0] + first[1], 0)
        scores = np.exp(hidden @ last[0] + last[1])
        self.assertLess(abs(scores / scores.sum(1, keepdims=True) - run.predict(texts)[1]).max(), 1e-6)

    @unittest.skipUnless(skytape.has_cuda, "the module was built without CUDA")
    def test_threads_on_a_gpu_get_the_answers_of_one(self):
        try:
            runs = [skytape.load(self.folder / "runs" / name, device="cuda") for name in ("a", "drawn")]
        except skytape.Error as error:
            self.skipTest(str(error))
        texts = [f"day {i} cold and grey" for i in range(6)]
        alone, found = [run.predict(texts)[1] for run in runs], []

        def ask(number):
            for _ in range(8):
                found.append(abs(runs[number].predict(texts)[1] - alone[number]).max())
        threads = [threading.Thread(target=ask, args=(i % 2,)) for i in range(4)]
        [thread.start() for thread in threads]
        [thread.join() for thread in threads]
        self.assertEqual(found, [0] * 32)

    def test_texts_that_utf_8_does_not_have_are_errors_that_name_them(self):
        run = skytape.load(self.folder / "runs/a")
        for call, said in ((lambda: run.predict(["day 3", "a\udc80"]), r"predict: texts\[1\]"),
                           (lambda: run.encode(["a\udc80"]), r"encode: texts\[0\]"),
                           (lambda: run.attention_maps("a\udc80"), "attention_maps: text")):
            with self.subTest(said), self.assertRaisesRegex(
                    skytape.UsageError, said + r": expected text that UTF-8 has, got '\\udc80' at place 1$"):
                call()

    def test_results_are_rows_and_curves(self):
        rows = skytape.results(self.folder)
        self.assertEqual([(row["attention"], row["seed"]) for row in rows],
                         [("softmax", 7), ("skyformer", 7)])
        self.assertIn("test_accuracy", " ".join(rows[0]))
        self.assertEqual(skytape.curves(self.folder / "runs/a")[-1]["kind"], "final")

    def test_what_is_no_run_is_an_exception(self):
        with self.assertRaisesRegex(skytape.DataError, "nowhere"):
            skytape.load("nowhere")
