#!/usr/bin/env python3
"""make race: times whole training steps of skytape and of the same model in PyTorch.

Each method runs in a separate process on either side, all of them in turn, `--rounds` times. The
baseline runs eager and compiled, and the faster form counts. `--size` takes a known encoder's shape. On a GPU all forms of the baseline
compile and warm up in parallel first (in_turn.py); then each is timed while the others wait. Writes
race-<device>[-<precision>].md and .json to --out.
Needs only the interpreter that has torch. The baseline is torch_baseline.py in this folder, or
another file with its methods, arguments and output
line ("name n=… batch=… 12.34 ms/step (min …) peak 56 MB …") this script knows.
"""
import argparse
import datetime
import json
import os
import pathlib
import re
import statistics
import subprocess
import sys
import tempfile
import time

# The baseline's name -> ours. Both of its softmax forms are compared with our single one.
METHODS = {
    "softmax_plain": "softmax", "softmax_sdpa": "softmax", "vmean": "vmean",
    "kernelized": "kernelized", "skyformer": "skyformer", "nystrom": "nystrom",
    "linformer": "linformer", "performer": "performer", "skeinformer": "skeinformer",
    "informer": "informer",
}
BASELINE_LINE = re.compile(r"([\d.]+) ms/step \(min ([\d.]+)\)\s+peak (\d+) MB")


class Process:
    """A command that runs."""

    def __init__(self, command, env):
        self.command, self.out = command, tempfile.TemporaryFile("w+")
        self.process = subprocess.Popen(command, stdout=self.out, stderr=subprocess.STDOUT,
                                        text=True, env=env)

    def end(self):
        """Its output and peak resident bytes, once it ends; an error if it fails."""
        _, status, usage = os.wait4(self.process.pid, 0)
        code = self.process.returncode = os.waitstatus_to_exitcode(status)
        self.out.seek(0)
        text = self.out.read()
        if code != 0:
            raise RuntimeError(f"{' '.join(self.command)}: exit {code}: {text[-300:]}")
        return text, usage.ru_maxrss * 1024


def model_arguments(args):
    """The arguments, which both sides know, of the model and of what is done with it."""
    arguments = [] if args.size == "papers" else ["--size", args.size]
    arguments += ["--layers", str(args.layers)] if args.layers else []
    return arguments + (["--forward"] if args.forward else [])


class Baselines:
    """One process for each form of each of the baseline's methods; with a `gate`, a folder, all begin
    together and wait there, warmed up, for their turn."""

    def __init__(self, args, env, gate=None):
        self.args, self.env, self.gate, self.waiting = args, env, gate, {}
        if gate is None:
            return
        for form in [(m, c) for m in args.methods for c in (False, True)]:
            self.waiting[form] = self.begin(*form, gate / "-".join(map(str, form)))
        for form, process in self.waiting.items():
            while process.process.poll() is None and not self.sign(form, "ready").exists():
                time.sleep(0.1)

    def sign(self, form, word):
        return self.gate / f"{form[0]}-{form[1]}.{word}"

    def begin(self, method, compiled, place=None):
        args, driver = self.args, pathlib.Path(__file__).with_name("in_turn.py")
        command = [sys.executable] + ([str(driver), str(place)] if place else []) + [
            args.peer, "--attn", method, "--n", str(args.n), "--batch", str(args.batch),
            "--features", str(args.features), "--steps", str(args.steps), "--threads",
            str(args.threads), "--device", args.device] + model_arguments(args)
        command += {"fp32": [], "tf32": ["--tf32"], "bf16": ["--amp", "bf16"]}[args.precision]
        return Process(command + (["--compile"] if compiled else []), self.env)

    def step(self, method, compiled):
        """(ms, peak bytes) of one form, or None with the reason printed."""
        form = (method, compiled)
        if self.gate is None:
            process = self.begin(*form)
        else:
            process = self.waiting.pop(form)
            self.sign(form, "go").touch()
        return step_in(*process.end(), self.args, form)


def step_in(text, rss, args, form):
    """(ms, peak bytes) from the baseline's output, or None with the reason printed."""
    method, compiled = form
    found = BASELINE_LINE.search(text)
    if not found:
        print(f"  {method}{' compiled' if compiled else ''}: {text.strip()[-200:]}", flush=True)
        return None
    peak = int(found[3]) * 2**20 if args.device == "cuda" else rss
    return float(found[1]), peak


def our_step(args, method, env):
    """(ms, peak bytes, the bench's row, machine) of one skytape process."""
    with tempfile.NamedTemporaryFile(suffix=".json") as file:
        _, rss = Process([args.skytape, "bench", "--attention", method, "--n", str(args.n), "--batch",
                      str(args.batch), "--features", str(args.features), "--steps", str(args.steps),
                      "--threads", str(args.threads), "--device", args.device, "--precision",
                      args.precision, "--json", file.name] + model_arguments(args), env).end()
        report = json.loads(pathlib.Path(file.name).read_text())
    row = report["results"][0]
    peak = row["peak_bytes"] if args.device == "cuda" else rss
    if args.forward:
        return row["forward_ms_median"], peak, row, report["machine"]
    # The baseline waits for its GPU after each step.
    return row.get("waited_step_ms_median", row["step_ms_median"]), peak, row, report["machine"]


def race(args):
    env = dict(os.environ, OMP_NUM_THREADS=str(args.threads))
    if args.device == "cuda":  # compilers of all methods share the cores
        env.setdefault("TORCHINDUCTOR_COMPILE_THREADS",
                       str(max(1, os.cpu_count() // len(args.methods))))
    rows, machine = [], {}
    runs = {baseline_name: ([], [], []) for baseline_name in args.methods}
    for done in range(1, args.rounds + 1):  # what changes the machine's speed changes all methods'
        with tempfile.TemporaryDirectory() as gate:
            baselines = Baselines(args, env, pathlib.Path(gate) if args.device == "cuda" else None)
            for baseline_name, (ours, eager, compiled) in runs.items():
                ms, peak, row, machine = our_step(args, METHODS[baseline_name], env)
                ours.append((ms, peak, row))
                eager.append(baselines.step(baseline_name, False))
                compiled.append(baselines.step(baseline_name, True))
                if done == args.rounds:
                    rows.append(summary(baseline_name, ours, eager, compiled))
                    print(markdown_row(rows[-1]), flush=True)
    rates = [rate for ours, _, _ in runs.values() for run in ours
             for rate in run[2].get("gemm_gflops_measured", [])]
    return rows, machine, warning_of(rates)


def warning_of(rates):
    """Returns a warning if the rate of our own products moved by more than a fifth; else nothing."""
    if not rates or max(rates) <= 1.2 * min(rates):
        return ""
    return (f"Warning: the GEMM throughput moved between {min(rates):.0f} and {max(rates):.0f} "
            "GFLOP/s meanwhile: others use the machine, and the rows cannot be compared.")


def median(runs):
    """Returns median ms and largest peak of the rounds that gave a figure; None if none did."""
    runs = [r for r in runs if r is not None]
    if not runs:
        return None
    return statistics.median(r[0] for r in runs), max(r[1] for r in runs)


def summary(baseline_name, ours, eager, compiled):
    forms = {name: median(runs) for name, runs in (("eager", eager), ("compiled", compiled))}
    forms = {name: form for name, form in forms.items() if form}
    row = {"peer": baseline_name, "attention": METHODS[baseline_name]}
    row["skytape_ms"], row["skytape_bytes"] = median(ours)
    row["share_of_gemm"] = statistics.median(r[2]["gemm_share"] for r in ours)
    row["gemm_gflops"] = statistics.median(r[2]["gemm_gflops"] for r in ours)
    for name in ("eager", "compiled"):
        row[f"{name}_ms"] = forms[name][0] if name in forms else None
        row[f"{name}_ratio"] = forms[name][0] / row["skytape_ms"] if name in forms else None
    if forms:
        best = min(forms, key=lambda name: forms[name][0])
        row["best"] = best
        row["time_ratio"] = forms[best][0] / row["skytape_ms"]
        # The speedup of a step that did the same products at the measured rate and nothing else.
        row["ceiling"] = row["time_ratio"] / row["share_of_gemm"]
        row["memory_ratio"] = forms[best][1] / row["skytape_bytes"]
    return row


def cell(value, digits=1):
    return "–" if value is None else f"{value:.{digits}f}"


COLUMNS = ["baseline", "ours", "skytape ms", "eager ms", "compiled ms", "times eager",
           "times compiled", "ceiling", "skytape MB", "times less memory"]


def markdown_row(row):
    cells = [cell(row["skytape_ms"]), cell(row["eager_ms"]), cell(row["compiled_ms"]),
             cell(row["eager_ratio"], 2), cell(row["compiled_ratio"], 2),
             cell(row.get("ceiling"), 2), cell(row["skytape_bytes"] / 1e6, 0),
             cell(row.get("memory_ratio"), 2)]
    return f"| `{row['peer']}` | `{row['attention']}` | " + " | ".join(cells) + " |"


def report(args, rows, machine, warning, torch):
    ratios = [row["time_ratio"] for row in rows if row.get("time_ratio")]
    mean = statistics.geometric_mean(ratios) if ratios else None
    ceilings = [row["ceiling"] for row in rows if row.get("ceiling")]
    highest = statistics.geometric_mean(ceilings) if ceilings else None
    rate = statistics.median(row["gemm_gflops"] for row in rows)
    what = (f"{args.device}, n={args.n}, batch {args.batch}, {args.features} features, "
            f"{args.threads} threads, precision {args.precision}")
    if args.size != "papers":
        what = f"{args.size}{f' with {args.layers} layers' if args.layers else ''}, {what}"
    if args.forward:
        what = f"forward passes, {what}"
    processes = f"{args.rounds} process" + ("es" if args.rounds > 1 else "")
    lines = [
        f"# skytape and PyTorch {torch}, {datetime.date.today()}", "",
        f"{machine.get('cpu')}, {what}; medians of {processes} of {args.steps} steps "
        f"each, in turn. Peak GEMM throughput {rate:.0f} GFLOP/s, revision "
        f"{machine.get('revision')}.", "",
        "| " + " | ".join(COLUMNS) + " |", "|---|---|" + "---:|" * (len(COLUMNS) - 2)]
    lines += [markdown_row(row) for row in rows]
    if warning:
        print(warning, file=sys.stderr)
        lines += ["", warning]
    lines += ["", f"Geometric mean of the times, with the faster baseline: {cell(mean, 2)}. Ceiling: "
              "times faster than that baseline if the step's products ran at the measured GEMM throughput and "
              f"nothing else took time; geometric mean {cell(highest, 2)}. Memory is the peak "
              + ("of the allocator." if args.device == "cuda" else "resident set of the process.")]
    args.out.mkdir(parents=True, exist_ok=True)
    suffix = "" if args.precision == "fp32" else f"-{args.precision}"
    if args.size != "papers":
        suffix += f"-{args.size}{f'-{args.layers}-layers' if args.layers else ''}-n{args.n}"
    suffix += "-forward" if args.forward else ""
    stem = args.out / f"race-{args.device}{suffix}"
    stem.with_suffix(".md").write_text("\n".join(lines) + "\n")
    stem.with_suffix(".json").write_text(json.dumps(
        {"machine": machine, "torch": torch, "settings": what, "geometric_mean": mean,
         "geometric_mean_of_ceilings": highest, "results": rows}, indent=2) + "\n")
    print("\n".join(lines[-1:]))
    print(f"wrote {stem}.md and .json")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--peer", default=str(pathlib.Path(__file__).with_name("torch_baseline.py")),
                        help="another baseline's Python file")
    parser.add_argument("--skytape", default="build/skytape-lab")
    parser.add_argument("--methods", default=",".join(METHODS), help="the baseline's names a,b,…")
    parser.add_argument("--n", type=int, default=2048)
    parser.add_argument("--batch", type=int, help="examples [4; 32 with --device cuda]")
    parser.add_argument("--features", type=int, default=128)
    parser.add_argument("--size", choices=["papers", "minilm", "bert-base"], default="papers",
                        help="of the model")
    parser.add_argument("--layers", type=int, help="in place of the size's")
    parser.add_argument("--forward", action="store_true", help="forward passes instead of steps")
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--steps", type=int, help="timed steps [5; 30 with --device cuda]")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    parser.add_argument("--precision", choices=["fp32", "tf32", "bf16"],
                        help="of both sides [fp32; bf16 with --device cuda]")
    parser.add_argument("--out", type=pathlib.Path, default=pathlib.Path("runs/race"))
    args = parser.parse_args()
    args.methods = args.methods.split(",")
    args.batch = args.batch or (32 if args.device == "cuda" else 4)
    args.steps = args.steps or (30 if args.device == "cuda" else 5)
    args.precision = args.precision or ("bf16" if args.device == "cuda" else "fp32")
    if args.device == "cpu" and args.precision == "tf32":
        parser.error("--precision tf32: that is a GPU's format; the cpu has fp32 and bf16")
    for name in args.methods:
        if name not in METHODS:
            parser.error(f"unknown method {name}; the baseline has {', '.join(METHODS)}")
    if not pathlib.Path(args.peer).exists():
        sys.exit(f"race: {args.peer} is not there")
    version = subprocess.run([sys.executable, "-c", "import torch; print(torch.__version__)"],
                             capture_output=True, text=True, check=False)
    if version.returncode != 0:
        sys.exit(f"race: {sys.executable} has no torch; make a virtual environment outside this "
                 "folder, pip install torch there, and give PYTHON=…/bin/python")
    try:
        rows, machine, warning = race(args)
    except RuntimeError as error:
        sys.exit(f"race: {error}")
    report(args, rows, machine, warning, version.stdout.strip())
    silent = [f"{row['peer']} {form}" for row in rows
              for form in ("eager", "compiled") if row[f"{form}_ms"] is None]
    if silent:
        sys.exit(f"race: the baseline gave no time for {', '.join(silent)}")


if __name__ == "__main__":
    main()
