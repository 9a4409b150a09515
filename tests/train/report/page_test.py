"""The report page: tables, pictures, and how a browser shows it on phones, screens and paper."""

import json
import re
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
sys.path[:0] = [str(ROOT / "train/report"), str(Path(__file__).parent)]

import page  # noqa: E402
import tables  # noqa: E402
from browser import PROGRAM, Browser  # noqa: E402

SMALLEST_TEXT = 9  # pixels of a letter's height in a picture, at any width
FONT = 12  # the pictures' own: 9 points
PAPER = 718  # pixels of A4 between its margins

# Width of each picture as shown over its own, and the number of its pixels that are not white.
PICTURES = """Promise.all([...document.images].map(async image => {
  await image.decode();
  const canvas = document.createElement("canvas");
  [canvas.width, canvas.height] = [image.naturalWidth, image.naturalHeight];
  const context = canvas.getContext("2d");
  context.fillStyle = "#ffffff";
  context.fillRect(0, 0, canvas.width, canvas.height);
  context.drawImage(image, 0, 0);
  const pixels = context.getImageData(0, 0, canvas.width, canvas.height).data;
  let ink = 0;
  for (let i = 0; i < pixels.length; i += 4) ink += pixels[i] + pixels[i + 1] + pixels[i + 2] < 600;
  const right = image.getBoundingClientRect().right;
  return {scale: image.clientWidth / image.naturalWidth, right, ink};
}))"""


def table(**more) -> dict:
    return {
        "title": "Test accuracy <in> per cent",
        "name": "accuracy",
        "heading": "Accuracy",
        "columns": ["task", "settings", "test"],
        "formats": ["{:g}", "{:g}", "{:.2f}"],
        "rows": [["listops", "a|b & " + "batch=16, " * 12, 37.5], ["text", "skytape", None]],
        "notes": ["A note."],
    } | more


def report(folder: Path) -> dict:
    """Returns a report of nine methods, a grid of learning rates, and two studies, one broken."""
    run = {
        "seed": 1,
        "step": [10, 20],
        "seconds": [1, 3],
        "loss": [2.5, 2.25],
        "dev_step": [10, 20],
        "dev_seconds": [1, 3],
        "dev_loss": [2.0, 1.5],
        "dev_accuracy": [25.0, 30.0],
    }
    study = {
        "experiment": "cost",
        "date": "2026-01-01",
        "revision": "abc",
        "machine": {"cpu": "one"},
        "facts": {"device": "cpu"},
        "tables": {
            "inference": table(
                title="Inference",
                rows=[
                    [float(n), 128.0, 4.0 * n, 2.0 * n, 2.0, 1, 1, 1.5, 1, 1, 1, 1]
                    for n in (256, 512)
                ],
                columns=[f"c{i}" for i in range(12)],
                formats=["{:.0f}"] * 12,
            )
        },
    }
    (folder / "cost.json").write_text(json.dumps(study))
    (folder / "broken.json").write_text(json.dumps(study | {"experiment": "approx"}))
    return {
        "title": "runs <small>",
        "facts": "made & told",
        "accuracies": [table()],
        "curves": [
            {
                "task": "listops",
                "pretraining": False,
                "trivial": 17.0,
                "papers_best": 39.25,
                "lines": [
                    {"name": f"method {i}", "runs": [run, run | {"loss": [3.0, 2.5]}]}
                    for i in range(9)
                ],
            }
        ],
        "arena": [
            {
                "task": "listops",
                "papers_best": 39.25,
                "points": [
                    {"name": n, "seconds": t, "accuracy": a, "low": a, "high": a}
                    for n, t, a in (("quick", 9.0, 38.0), ("slow", 90.0, 37.0), ("best", 60.0, 41.0))
                ],
            }
        ],
        "rates": [
            {
                "task": "text",
                "attention": "skyformer",
                "runs": [
                    {"lr": lr, "batch": 64, "seed": 1, "dev_accuracy": 60.0, "seconds": 90.0}
                    for lr in (1e-3, 1e-4)
                ],
            }
        ],
        "runs": [
            table(
                heading="Runs",
                name="runs",
                columns=[f"column {i}" for i in range(15)],
                formats=["{:g}"] * 15,
                rows=[["some settings, and more=0.25"] * 15],
            )
        ],
        "studies": [
            {"name": "cost", "file": str(folder / "cost.json")},
            {"name": "approx", "file": str(folder / "broken.json")},
        ],
        "skipped": ["torn: broken: no JSON"],
    }


class Page(unittest.TestCase):
    def setUp(self):
        self.home = tempfile.TemporaryDirectory()
        self.folder = Path(self.home.name)
        self.report = report(self.folder)

    def tearDown(self):
        self.home.cleanup()

    def make(self, *arguments):
        """Returns the page that the program makes of the report."""
        (self.folder / "report.json").write_text(json.dumps(self.report))
        done = subprocess.run(
            [
                sys.executable,
                ROOT / "train/report/page.py",
                self.folder / "report.json",
                *arguments,
            ],
            capture_output=True,
            text=True,
            check=False,
        )
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn(
            "broken.json: broken: not what its kind of picture is drawn from", done.stderr
        )
        return Path(done.stdout.strip())

    def test_the_page_has_tables_pictures_studies_and_what_was_skipped(self):
        file = self.make()
        self.assertEqual(file, self.folder / "report.html")
        text = file.read_text(encoding="utf-8")
        self.assertIn("<td>listops</td><td>a|b &amp; batch=16", text)
        self.assertIn("<td class=number>37.50</td>", text)
        self.assertIn("<td>text</td><td>skytape</td><td class=number>-</td>", text)
        self.assertIn("Test accuracy &lt;in&gt; per cent", text)
        self.assertIn("<h1>skytape: runs &lt;small&gt;</h1>", text)
        self.assertIn("<li>torn: broken: no JSON</li>", text)
        self.assertIn("lines: method 0, method 1", text)
        # The arena, curves, rates, inference.
        self.assertEqual(text.count("<img "), 1 + 2 * (2 + 2 + 2) + 2 + 3)
        self.assertNotIn("http-equiv", text)
        self.assertNotIn("<script", text)
        self.assertEqual(
            self.make("--out", self.folder / "deep/mine.html"), self.folder / "deep/mine.html"
        )

    def test_a_watched_page_loads_itself_again_and_draws_only_what_has_changed(self):
        page.DRAWN.clear()
        self.assertIn('http-equiv="refresh" content="5"', page.page_of(self.report, 5))
        before = dict(page.DRAWN)
        self.report["curves"][0]["lines"][8]["runs"][0]["loss"] = [2.0, 1.0]
        page.page_of(self.report, 5)
        self.assertEqual(set(before) - set(page.DRAWN), set())
        self.assertEqual(
            len(set(page.DRAWN) - set(before)), 4
        )  # the loss of two groups: their axes are alike

    def test_watching_runs_the_laboratory_again_and_ends_as_it_fails(self):
        runs, lab = self.folder / "runs", self.folder / "lab"
        runs.mkdir()
        (self.folder / "source.json").write_text(
            json.dumps(self.report | {"arena": [], "curves": [], "rates": [], "studies": []})
        )
        lab.write_text(
            f'#!/bin/sh\necho "$@" >>{self.folder}/calls\n'
            f"[ $(wc -l <{self.folder}/calls) -lt 3 ] || exit 3\n"
            f'mkdir -p "$5" && cp {self.folder}/source.json "$5/report.json"\n'
        )
        lab.chmod(0o755)
        done = subprocess.run(
            [
                sys.executable,
                ROOT / "train/report/page.py",
                "--runs",
                runs,
                "--watch",
                "1",
                "--lab",
                lab,
            ],
            capture_output=True,
            text=True,
            check=False,
        )
        self.assertEqual(done.returncode, 3)
        self.assertEqual(
            (self.folder / "calls").read_text(), f"report --runs {runs} --out {runs}/report\n" * 3
        )
        self.assertIn('content="1"', (runs / "report/report.html").read_text())

    def test_markdown_has_the_numbers_as_the_program_prints_them(self):
        (self.folder / "report.json").write_text(json.dumps(self.report))
        done = subprocess.run(
            [
                sys.executable,
                ROOT / "train/report/tables.py",
                self.folder / "report.json",
                "accuracy",
            ],
            capture_output=True,
            text=True,
            check=True,
        )
        lines = done.stdout.splitlines()
        self.assertEqual(lines[0], "| task | settings | test |")
        self.assertTrue(lines[2].startswith("| listops | a\\|b & batch=16"))
        self.assertEqual(lines[3], "| text | skytape | - |")
        self.assertEqual(tables.text_of(37.5, "{:.2f}"), "37.50")

    @unittest.skipUnless(
        PROGRAM, "the report page was NOT OPENED in a browser: apt-get install chromium"
    )
    def test_a_browser_shows_every_picture_on_a_phone_on_a_screen_and_on_paper(self):
        address = self.make().as_uri()
        browser = Browser()
        self.addCleanup(browser.close)
        for width, media in ((400, "screen"), (1280, "screen"), (PAPER, "print")):
            with self.subTest(width=width, media=media):
                browser.open(address, width, media)
                pictures = browser.value(PICTURES)
                self.assertEqual(browser.errors, [])
                self.assertEqual(len(pictures), 18)
                for picture in pictures:
                    self.assertGreater(picture["ink"], 1000)
                    self.assertGreaterEqual(picture["scale"] * FONT, SMALLEST_TEXT)
                    self.assertLessEqual(picture["right"], width)
                self.assertLessEqual(browser.value("document.documentElement.scrollWidth"), width)
                self.assertIn("skytape", browser.value("document.body.innerText"))
        paper = browser.pdf()
        self.assertTrue(paper.startswith(b"%PDF"))
        self.assertGreater(len(re.findall(rb"/Type\s*/Page\b", paper)), 1)

    @unittest.skipUnless(PROGRAM, "no browser to notice errors with: apt-get install chromium")
    def test_errors_of_a_page_are_noticed(self):
        browser = Browser()
        self.addCleanup(browser.close)
        file = self.folder / "bad.html"
        file.write_text("<script>nowhere()</script><img src=missing.png>")
        browser.open(file.as_uri(), 400)
        self.assertTrue(any("Uncaught" in error for error in browser.errors), browser.errors)
        with self.assertRaises(RuntimeError):
            browser.value(PICTURES)


if __name__ == "__main__":
    unittest.main()
