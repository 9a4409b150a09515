"""Each kind of picture, drawn from a few numbers: lines, labels, ends of axes, colours."""

import json
import math
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

import numpy as np

ROOT = Path(__file__).resolve().parents[3]
sys.path.insert(0, str(ROOT / "train/report"))

import approx  # noqa: E402
import arena  # noqa: E402
import curves  # noqa: E402
import draw  # noqa: E402
import language_models  # noqa: E402
import lengths  # noqa: E402
import matrices  # noqa: E402
import rates  # noqa: E402
import spectrum  # noqa: E402
import stability  # noqa: E402
import style  # noqa: E402
from style import Axis, Cells, Figure, Line, Lines  # noqa: E402


def drawn(figure: Figure):
    """Returns the panels' axes, without those of colour bars."""
    style.choose_colours(figure.panels)
    canvas = style.drawn(figure.panels, figure.columns, figure.title)
    return [axes for axes in canvas.axes if axes.get_label() != "<colorbar>"]


def lines_of(axes) -> dict:
    """Returns the drawn lines by name."""
    return {line.get_label(): line for line in axes.lines if not line.get_label().startswith("_")}


def labels_of(axes) -> list[str]:
    return [text.get_text() for text in axes.line_labels]


class Panels(unittest.TestCase):
    def panel(self, count, **more):
        lines = [
            Line(f"method {i}", [8, 16, 32], [1.0 + i, 0.5 + i, 0.25 + i]) for i in range(count)
        ]
        return Lines("many", Axis("d", "log2"), Axis("error", "log10", **more), lines)

    def test_a_panel_has_seven_lines_at_most_and_references_stand_in_each(self):
        panel = self.panel(17)
        panel.lines.append(Line("exact", [8, 32], [0.1, 0.1], reference=True))
        panels = style.small_multiples(panel)
        self.assertEqual([len(p.lines) for p in panels], [6, 7, 7])
        self.assertEqual(
            {line.name for p in panels for line in p.lines}, {line.name for line in panel.lines}
        )
        self.assertTrue(all(p.lines[-1].name == "exact" for p in panels))
        axes = drawn(Figure("many", "Many", panels, 3))
        self.assertEqual(len({a.get_ylim() for a in axes}), 1)
        self.assertLess(axes[0].get_ylim()[0], 0.1)
        self.assertGreater(axes[0].get_ylim()[1], 17)

    def test_seven_lines_are_one_panel(self):
        self.assertEqual(len(style.small_multiples(self.panel(7))), 1)

    def test_each_line_has_its_label_beside_its_end_and_none_overlap(self):
        panel = self.panel(7)
        for line in panel.lines:
            line.y = [3.0, 2.0, 1.0]  # all end at one point
        axes = drawn(Figure("same", "", [panel]))[0]
        self.assertIsNone(axes.get_legend())
        self.assertEqual(labels_of(axes), [line.name for line in panel.lines])
        renderer = axes.figure.canvas.get_renderer()
        boxes = sorted(
            (style_box(text, renderer) for text in axes.line_labels), key=lambda box: box.y0
        )
        for below, above in zip(boxes, boxes[1:]):
            self.assertGreaterEqual(above.y0, below.y1 - 2)
        width = axes.figure.bbox.width
        for text, line in zip(axes.line_labels, lines_of(axes).values()):
            self.assertEqual(text.get_color(), line.get_color())
            self.assertLessEqual(style_box(text, renderer).x1, width)

    def test_labels_of_lines_that_end_at_one_point_are_in_the_order_of_the_lines(self):
        panel = self.panel(3)
        for line, height in zip(panel.lines, (2.0, 9.0, 4.0)):
            line.y = [height, height, 1.0]
        axes = drawn(Figure("same", "", [panel]))[0]
        places = [text.get_position()[1] for text in axes.line_labels]
        self.assertTrue(places[0] < places[2] < places[1], places)

    def test_a_title_is_as_wide_as_its_panels_at_most(self):
        canvas = style.drawn([self.panel(2)], 1, "Singular values of attention outputs: " * 3)
        box = canvas._suptitle.get_window_extent(canvas.canvas.get_renderer())
        self.assertGreaterEqual(box.x0, 0)
        self.assertLessEqual(box.x1, canvas.bbox.width)

    def test_no_two_lines_of_a_panel_have_one_colour_and_a_name_keeps_its_colour(self):
        one, two = self.panel(7), self.panel(7)
        two.lines = two.lines[::-1]
        axes = drawn(Figure("two", "", [one, two]))
        for a in axes:
            colours = [np.array(style_rgb(line.get_color())) for line in lines_of(a).values()]
            for i, x in enumerate(colours):
                for y in colours[:i]:
                    self.assertGreater(np.abs(x - y).sum(), 0.3)
        for name, line in lines_of(axes[0]).items():
            self.assertEqual(line.get_color(), lines_of(axes[1])[name].get_color())

    def test_what_is_missing_is_a_gap_and_a_panel_without_values_says_so(self):
        gap = Lines(
            "gap", Axis("x"), Axis("y", "log10"), [Line("a", [1, 2, 3, 4], [1.0, None, 0.0, 2.0])]
        )
        none = Lines("none", Axis("x"), Axis("y"), [Line("a", [1, 2], [None, math.nan])])
        axes = drawn(Figure("gaps", "", [gap, none]))
        np.testing.assert_equal(lines_of(axes[0])["a"].get_ydata(), [1.0, np.nan, np.nan, 2.0])
        self.assertEqual(labels_of(axes[1]), [])
        self.assertIn("no data", [text.get_text() for text in axes[1].texts])

    def test_a_logarithmic_axis_is_as_long_as_its_numbers_and_a_line_outside_is_told(self):
        panel = Lines("", Axis("x"), Axis("y", "log10"), [Line("a", [1, 2], [546.0, 58.0])])
        low, high = drawn(Figure("narrow", "", [panel]))[0].get_ylim()
        self.assertTrue(40 < low < 58 and 546 < high < 700, (low, high))
        panel.y = Axis("y", ends=(0, 60))
        panel.lines.append(Line("far", [1, 2], [1000.0, 900.0]))
        self.assertEqual(labels_of(drawn(Figure("far", "", [panel]))[0]), ["a", "far (above)"])

    def test_cells_say_their_range_and_cross_what_lies_beyond_it(self):
        cells = Cells(
            "head",
            "key",
            "query",
            ["a", "b"],
            ["a", "b"],
            [[0.5, -0.92], [3.0, None]],
            "weight",
            (-1.0, 1.0),
        )
        axes = drawn(Figure("cells", "", [cells]))[0]
        mesh = axes.collections[0]
        self.assertEqual(mesh.get_clim(), (-1.0, 1.0))
        self.assertEqual(mesh.get_cmap().name, "RdBu_r")
        self.assertEqual(axes.get_title(), "head\n-0.92 to 3.00; ×: 1 beyond the colours")
        self.assertEqual([text.get_text() for text in axes.texts], ["×"])
        bar = [a for a in axes.figure.axes if a is not axes][0]
        self.assertEqual(bar.get_ylabel(), "weight, -1 to 1")
        colour = mesh.to_rgba(np.array([0.0, -0.92]))
        self.assertGreater(colour[0][:3].min(), 0.95)  # zero is white, and what is below is not
        self.assertLess(colour[1][:3].min(), 0.3)
        self.assertEqual([t.get_text() for t in axes.get_yticklabels()], ["a", "b"])
        self.assertTrue(axes.yaxis_inverted())  # the first row at the top


def style_box(text, renderer):
    """Returns where a label's words stand, without its leader."""
    from matplotlib.text import Text

    return Text.get_window_extent(text, renderer)


def style_rgb(colour):
    from matplotlib.colors import to_rgb

    return to_rgb(colour)


class Kinds(unittest.TestCase):
    def test_approx_has_a_panel_for_each_length_and_a_close_up_below_the_mean(self):
        cells = []
        for n in (512, 1024):
            for method in ("vmean", "far", *(f"m{i}" for i in range(12)), "best rank d"):
                for d in ([None] if method == "vmean" else [8, 16]):
                    cells.append(
                        {
                            "attention": method,
                            "target": "softmax",
                            "n": n,
                            "features": d,
                            "trials": 2,
                            "error_mean": 2.0,
                            "error_se": 0.1,
                            "relative_mean": {"vmean": 0.15, "far": 0.2, "m1": 0.3}.get(
                                method, 0.05
                            ),
                            "relative_se": 0.01,
                            "exact_norm_mean": 10.0,
                        }
                    )
        figures = approx.figures({"details": {"results": cells, "source": "a test"}})
        self.assertEqual(
            [figure.name for figure in figures],
            [
                "softmax-absolute",
                "softmax-absolute-close-up",
                "softmax-relative",
                "softmax-relative-close-up",
            ],
        )
        drawn(figures[2])
        self.assertTrue(figures[3].title.endswith("a test (close-up; above it: far, m1)"))
        axes = drawn(figures[3])
        self.assertEqual(len(axes), 6)  # two lengths, three groups of methods
        for a in axes:
            colours = [line.get_color() for line in lines_of(a).values()]
            self.assertEqual(len(set(colours)), len(colours))
            self.assertFalse({"far", "m1"} & set(lines_of(a)))
        self.assertEqual(axes[0].get_ylim(), (0, 18.0))
        self.assertEqual(axes[0].get_xscale(), "log")
        self.assertEqual(list(lines_of(axes[0])["vmean"].get_ydata()), [15.0, 15.0])
        self.assertEqual(axes[3].get_title(), "n = 1024 (1 of 3)")
        self.assertTrue(all(len(lines_of(a)) <= 7 for a in axes))
        self.assertTrue(all({"vmean", "best rank d"} <= set(lines_of(a)) for a in axes))

    def heads(self, layers, count):
        curve = [[1, 0.4], [2, 0.7], [4, 0.9], [8, 1.0]]
        return [
            {
                "layer": layer,
                "head": head,
                "output_singular_values": [2.0, 1.0, 0.5 + 0.1 * head],
                "softmax": {
                    "cumulative": curve,
                    "share_at_quarter": 0.7 - 0.01 * head,
                    "rank_90": 3,
                },
                "kernelized": {"cumulative": curve, "share_at_quarter": 0.9, "rank_90": 2},
                "ridges": [0.1, 0.01],
                "statistical_dimension": [2.0, 3.0],
                "leverage": [[1, 0.5], [16, 0.1]],
            }
            for layer in range(layers)
            for head in range(count)
        ]

    def test_spectra_are_drawn_by_head_or_as_means_of_layers_beside_maps_of_one_scale(self):
        for layers, count, lines in (
            (2, 2, ["layer 0 head 0", "layer 0 head 1", "layer 1 head 0", "layer 1 head 1"]),
            (2, 12, ["layer 0", "layer 1"]),
        ):
            figures = spectrum.figures(
                {"details": {"results": self.heads(layers, count), "source": "a test"}}
            )
            self.assertEqual(
                [f.name for f in figures],
                ["output-spectrum", "attention-spectrum", "kernel-theory"],
            )
            attention = drawn(figures[1])
            self.assertEqual(list(lines_of(attention[0])), lines)
            maps = [axes.collections[0] for axes in attention if axes.collections]
            self.assertEqual(len(maps), 2)
            self.assertEqual(maps[0].get_clim(), maps[1].get_clim())
            self.assertEqual(maps[0].get_array().size, layers * count)
            for figure in figures:
                self.assertTrue(all(len(lines_of(axes)) <= 7 for axes in drawn(figure)))

    def test_gradients_of_a_run_that_failed_say_at_which_step(self):
        data = {
            "facts": {"trained on": "listops", "recipe": "skyformer"},
            "details": {
                "gradients": [
                    {
                        "attention": "nystrom_sm",
                        "norm": [1.0, 30.0],
                        "loss": [2.3, 2.2],
                        "failed_at": 3,
                    },
                    {
                        "attention": "skyformer",
                        "norm": [1.0, 1.0],
                        "loss": [2.3, 2.1],
                        "failed_at": 0,
                    },
                ]
            },
        }
        norms, losses = drawn(stability.figures(data)[0])
        self.assertEqual(labels_of(norms), ["nystrom_sm (not\nfinite at 3)", "skyformer"])
        self.assertEqual(list(lines_of(losses)["skyformer"].get_ydata()), [2.3, 2.1])
        self.assertEqual(stability.figures({"facts": {}}), [])

    def test_lengths_have_softmax_in_each_panel_and_inference_its_own_figure(self):
        rows = [
            [
                f"m{i}" if i else "softmax",
                n,
                2.0 * n,
                1,
                1,
                1024 // n if n <= 512 else None,
                3.0 * n if n <= 512 else None,
                1,
                1,
            ]
            for i in range(18)
            for n in (256, 512, 1024)
        ]
        inference = [
            [n, k, 10.0 * n, 5.0 * n, 2.0, 1, 1, 1.7, 1, 1, 1, 1]
            for n in (512, 1024)
            for k in (128, 256)
        ]
        step, times = lengths.figures(
            {
                "tables": {
                    "length": {
                        "title": "Training steps: of one example, and of a batch of 1024 tokens",
                        "rows": rows,
                    },
                    "inference": {"title": "", "rows": inference},
                }
            }
        )
        axes = drawn(step)
        self.assertEqual(len(axes), 6)
        self.assertTrue(all(len(lines_of(a)) <= 7 and "softmax" in lines_of(a) for a in axes))
        self.assertEqual(axes[3].get_title(), "1024 tokens (1 of 3)")
        self.assertEqual(list(lines_of(axes[3])["softmax"].get_xdata()), [256, 512])
        of_example, gain, papers = drawn(times)
        self.assertEqual(labels_of(of_example), ["exact", "k = 128", "k = 256"])
        self.assertEqual(list(lines_of(of_example)["exact"].get_ydata()), [5120.0, 10240.0])
        self.assertEqual(list(lines_of(papers)["k = 128"].get_ydata()), [1.7, 1.7])
        self.assertEqual(list(lines_of(gain)["k = 128"].get_ydata()), [2.0, 2.0])

    def test_matrices_name_the_head_and_share_one_scale_that_holds_negative_weights(self):
        exact = [[0.5, 0.5], [0.25, 0.75]]
        data = {
            "facts": {"model": "a model", "layer": 3, "head": 2, "tokens": ["one", "two"]},
            "details": {
                "exact": {"softmax": exact},
                "results": [
                    {"method": "softmax", "target": "softmax", "error": 0, "matrix": exact},
                    {
                        "method": "linformer (trained)",
                        "target": "softmax",
                        "error": 1,
                        "matrix": [[1.5, -0.92], [0.0, 9.0]],
                    },
                ],
            },
        }
        figures = matrices.figures(data)
        self.assertEqual(
            [f.name for f in figures], ["matrices", "matrix-softmax", "matrix-linformer-trained"]
        )
        for figure in figures:
            self.assertIn("layer 3, head 2", figure.title)
        maps = [axes.collections[0] for axes in drawn(figures[0])]
        self.assertEqual(
            [m.get_clim() for m in maps], [(-3.0, 3.0)] * 2
        )  # four times the exact 0.75
        self.assertIn("1 beyond", drawn(figures[0])[1].get_title())
        whole = drawn(figures[2])
        self.assertEqual([axes.collections[0].get_clim() for axes in whole], [(-9.0, 9.0)] * 3)
        np.testing.assert_allclose(
            whole[2].collections[0].get_array().ravel(), [1.0, -1.42, -0.25, 8.25]
        )
        self.assertNotIn("beyond", "".join(axes.get_title() for axes in whole))

    def test_language_models_have_a_panel_for_each_n_the_sharings_and_the_k_of_all_n(self):
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / "mlm-curves.csv"
            rows = ["n,k,sharing,step,seconds,perplexity"]
            for n, k, sharing in (
                (128, "exact", ""),
                (128, 32, "keyvalue"),
                (128, 16, "keyvalue"),
                (128, 32, "none"),
                (256, "exact", ""),
                (256, 64, "keyvalue"),
                (256, 32, "keyvalue"),
            ):
                rows += [f"{n},{k},{sharing},{step},{step / 2},{600 - step}" for step in (100, 200)]
            file.write_text("\n".join(rows))
            steps, seconds = draw.figures_of(file)
        axes = drawn(steps)
        self.assertEqual(
            [a.get_title() for a in axes],
            ["n = 128", "n = 256", "n = 128, k = 32: sharing", "k = 32 at every n"],
        )
        self.assertEqual(
            [labels_of(a) for a in axes],
            [
                ["exact", "k = 32", "k = 16"],
                ["exact", "k = 64", "k = 32"],
                ["keyvalue", "none"],
                ["n = 128", "n = 256"],
            ],
        )
        self.assertEqual(axes[0].get_ylabel(), "perplexity of hidden tokens")
        self.assertEqual(list(lines_of(drawn(seconds)[0])["exact"].get_xdata()), [50.0, 100.0])

    def task(self, names=("skyformer",), seeds=1):
        runs = [
            {
                "seed": s,
                "step": [10, 20],
                "seconds": [1 + s, 3 + s],
                "loss": [2.5 + s, 2.25],
                "dev_step": [10],
                "dev_seconds": [1.5],
                "dev_loss": [2.0 + s],
                "dev_accuracy": [25.0 + s],
            }
            for s in range(seeds)
        ]
        return {
            "task": "listops",
            "pretraining": False,
            "trivial": 17.0,
            "papers_best": 39.25,
            "lines": [{"name": name, "runs": runs} for name in names],
        }

    def test_curves_stand_against_steps_and_seconds_with_dev_loss_the_papers_and_the_baseline(self):
        axes = drawn(curves.figure(self.task()))
        self.assertEqual(
            [a.get_title() for a in axes],
            [
                f"{what} against {x}"
                for what in ("Training loss", "Dev loss", "Dev accuracy")
                for x in ("steps", "time")
            ],
        )
        self.assertEqual(list(lines_of(axes[1])["skyformer"].get_xdata()), [1.0, 3.0])
        self.assertEqual(list(lines_of(axes[3])["skyformer"].get_ydata()), [2.0])
        self.assertEqual(sorted(labels_of(axes[5])), ["papers' best", "skyformer", "trivial"])
        self.assertEqual(list(lines_of(axes[4])["papers' best"].get_ydata()), [39.25, 39.25])
        task = self.task() | {"pretraining": True, "papers_best": None, "trivial": None}
        figure = curves.figure(task)
        self.assertEqual(figure.name, "pretraining-listops")
        self.assertEqual(drawn(figure)[0].get_ylabel(), "masked loss")

    def test_seeds_are_one_line_with_a_band_from_the_lowest_to_the_highest(self):
        figure = curves.figure(self.task(seeds=2))
        self.assertIn("bands: lowest to highest", figure.title)
        axes = drawn(figure)[1]
        line = lines_of(axes)["skyformer"]
        self.assertEqual(
            (list(line.get_xdata()), list(line.get_ydata())), ([1.5, 3.5], [3.0, 2.25])
        )
        band = axes.collections[0].get_paths()[0].vertices
        self.assertEqual((band[:, 1].min(), band[:, 1].max()), (2.25, 3.5))
        self.assertFalse(drawn(curves.figure(self.task()))[1].collections)

    def test_many_methods_are_several_panels(self):
        figure = curves.figure(self.task([f"m{i}" for i in range(9)]))
        for axes in drawn(figure):
            self.assertLessEqual(len(lines_of(axes)), 7)

    def test_learning_rate_and_batch_are_a_map_of_means_over_seeds(self):
        runs = [
            {"lr": lr, "batch": batch, "seed": seed, "dev_accuracy": 60 + seed, "seconds": 120.0}
            for lr, batch in ((1e-3, 64), (1e-4, 64), (1e-4, 128))
            for seed in (1, 2)
        ]
        figure = rates.figures(
            {"rates": [{"task": "text", "attention": "skyformer", "runs": runs}]}
        )[0]
        accuracy, minutes = drawn(figure)
        values = accuracy.collections[0].get_array().reshape(2, 2)
        self.assertEqual([t.get_text() for t in accuracy.get_yticklabels()], ["0.001", "0.0001"])
        self.assertEqual([t.get_text() for t in accuracy.get_xticklabels()], ["64", "128"])
        self.assertEqual(values[0, 0], 61.5)
        self.assertTrue(np.ma.getmaskarray(values)[0, 1] or np.isnan(values[0, 1]))  # no run
        self.assertEqual([t.get_text() for t in minutes.texts], ["2"] * 3)


class Files(unittest.TestCase):
    def run_draw(self, *arguments, **more):
        return subprocess.run(
            [sys.executable, ROOT / "train/report/draw.py", *arguments],
            capture_output=True,
            text=True,
            check=False,
            **more,
        )

    def test_draw_writes_png_and_svg_beside_the_data_and_names_broken_files(self):
        with tempfile.TemporaryDirectory() as folder:
            place = Path(folder)
            study = {
                "experiment": "stability",
                "facts": {"trained on": "listops", "recipe": "skytape"},
                "details": {
                    "gradients": [
                        {"attention": "softmax", "norm": [1.0], "loss": [2.0], "failed_at": 0}
                    ]
                },
            }
            (place / "stability.json").write_text(json.dumps(study))
            (place / "theory.json").write_text(json.dumps({"experiment": "theory", "tables": {}}))
            done = self.run_draw(place)
            self.assertEqual((done.returncode, done.stderr), (0, ""))
            self.assertEqual((place / "stability_gradients.png").read_bytes()[:4], b"\x89PNG")
            self.assertIn("<svg", (place / "stability_gradients.svg").read_text())
            (place / "approx.json").write_text(json.dumps({"experiment": "approx", "details": {}}))
            done = self.run_draw(place)
            self.assertEqual(done.returncode, 1)
            self.assertIn(
                "approx.json: not what its kind of picture is drawn from: KeyError", done.stderr
            )

    def test_without_matplotlib_one_sentence_says_what_to_install(self):
        with tempfile.TemporaryDirectory() as folder:
            (Path(folder) / "matplotlib.py").write_text(
                "raise ImportError('none here', name='matplotlib')"
            )
            for program in ("draw.py", "page.py"):
                done = subprocess.run(
                    [sys.executable, ROOT / "train/report" / program, "x"],
                    capture_output=True,
                    text=True,
                    check=False,
                    env={"PYTHONPATH": folder},
                )
                self.assertEqual(done.returncode, 3)
                self.assertEqual(done.stderr.count("\n"), 1)
                self.assertIn("apt-get install python3-matplotlib", done.stderr)


class Arena(unittest.TestCase):
    def points(self, count):
        return [
            {"name": f"method {i}", "seconds": 10.0 * 1.2**i, "accuracy": 50 + (7 * i) % 11,
             "low": 49 + (7 * i) % 11, "high": 50 + (7 * i) % 11}
            for i in range(count)
        ]  # fmt: skip

    def test_the_front_has_what_no_other_method_passes_in_both(self):
        points = [style.Point(n, x, y, y, y) for n, x, y in (
            ("slow and worse", 9.0, 1.0), ("quick", 1.0, 2.0), ("best", 8.0, 4.0),
            ("as quick, worse", 1.0, 1.0), ("as good, slower", 9.0, 4.0))]  # fmt: skip
        self.assertEqual([point.name for point in arena.front_of(points)], ["quick", "best"])

    def test_each_of_28_names_stands_inside_the_panel_and_covers_no_other(self):
        picture = {"task": "text", "papers_best": 65.0, "points": self.points(28)}
        axes = drawn(arena.figures({"arena": [picture]})[0])[0]
        renderer = axes.figure.canvas.get_renderer()
        boxes = [style_box(text, renderer) for text, _ in axes.named_points]
        self.assertEqual(len(boxes), 28)
        for i, one in enumerate(boxes):
            self.assertLessEqual(one.x1, axes.get_window_extent(renderer).x1 + 1)
            for other in boxes[:i]:
                width = min(one.x1, other.x1) - max(one.x0, other.x0)
                height = min(one.y1, other.y1) - max(one.y0, other.y0)
                self.assertFalse(width > 1 and height > 1, (one, other))

    def test_a_level_far_from_all_points_is_told_and_does_not_squeeze_them(self):
        picture = {"task": "text", "papers_best": 5.0, "points": self.points(4)}
        axes = drawn(arena.figures({"arena": [picture]})[0])[0]
        self.assertIn("papers' best: 5", axes.get_title())
        self.assertGreater(axes.get_ylim()[0], 40)
        picture["papers_best"] = 52.0
        axes = drawn(arena.figures({"arena": [picture]})[0])[0]
        self.assertEqual(axes.get_title(), "text")
        self.assertIn("papers' best", [text.get_text() for text in axes.texts])

    def test_tasks_without_two_methods_have_no_picture(self):
        self.assertEqual(arena.figures({"arena": []}), [])


if __name__ == "__main__":
    unittest.main()
