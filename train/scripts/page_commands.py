#!/usr/bin/env python3
"""page_commands.py: runs the commands of the pages, each once and small.

Every page has a separate folder, which holds what its sentences say that a user has (texts, a
table, a pre-trained encoder, prepared tasks) and nothing else; its commands run there in the page's
order. Sizes are made small by flags of SMALL; what else a command says stays. What cannot run here
is listed in NOT_HERE, each with its reason. The last line is "N passed, N failed".
"""
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tarfile
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
STUDIES, CURVES = "train/lab/studies/README.md", "train/lab/curves/README.md"
PAGES = ["data/custom/README.md", "train/encoders/README.md", STUDIES, CURVES,
         *sorted(str(page.relative_to(ROOT)) for page in ROOT.glob("train/results/*.md"))]

# Beginnings of commands that are not run, and why.
NOT_HERE = {
    "make readme": "writes the pages",
    "make goldens": "a step of CI by itself",
    "make gpu-": "needs CUDA, or the machine that a bundle is carried to",
    "make test": "a step of CI by itself",
    "make CUDA=simulated": "a step of CI by itself",
    "make race": "needs PyTorch and another program",
    "skytape-lab bench --kernels": "reads CUPTI's records of a GPU",
    "skytape-lab bench --ranks": "times an exchange between ranks: tests/train/lab/bench has it small",
    # Named, with no flags, by a sentence about them: they need some.
    "skytape-lab matrix": "named alone", "skytape import": "named alone", "skytape pretrain": "named alone",
    "skytape data": "named alone",
}

# The values that replace or add flags of a command, by subcommand.
TRAINING = {"--steps": "3", "--batch": "4", "--threads": "1"}
LENGTHS = {"--n": "16", "--features": "4"}
SMALL = {
    "train": TRAINING, "pretrain": TRAINING,
    "lra": TRAINING | {"--attentions": "vmean,linformer", "--jobs": "2", "--seeds": "2"},
    "mlm-curves": {"--steps": "3", "--batch": "4", "--lengths": "16,32", "--layers": "1", "--width": "16"},
    "bench": {"--attention": "vmean,skyformer", "--n": "64,128", "--steps": "1", "--batch": "1", "--features": "8",
              "--threads": "1", "--no-rates": None},
    "approx": {"--n": "16", "--features": "4,8", "--trials": "1", "--threads": "1"},
    "spectrum": LENGTHS | {"--examples": "1", "--threads": "1"},
    "theory": {"--n": "64", "--seeds": "1"},
    "stability": {"--tasks": "listops", "--attention": "softmax,skyformer", "--steps": "3", "--batch": "1",
                  "--train-steps": "3", "--set": "max_length=64", "--threads": "1"},
    "cost": {"--attention": "vmean,linformer", "--tasks": "listops", "--lengths": "64,128", "--tokens": "128",
             "--batch": "1", "--steps": "1", "--inference-lengths": "64", "--projected": "16", "--threads": "1"},
    "matrix": {"--attention": "softmax,linformer", "--threads": "1"},
    "data": {}, "import": {}, "encode": {}, "eval": {"--threads": "1"},
    "predict": {"--threads": "1"}, "report": {}, "info": {},
}
# Of cost's those that a table reads: the program refuses others.
OF_TABLE = {"tasks": {"--attention", "--tasks", "--batch", "--steps", "--threads"},
            "inference": {"--inference-lengths", "--projected", "--tokens", "--steps", "--threads"},
            "length": {"--attention", "--lengths", "--tokens", "--steps", "--threads"}}
# The same where a command has the flag already.
IF_SAID = {"--device": "cpu", "--precision": "fp32", "--layer": "1", "--learn-tokens": "unigram:60",
           "--length": "32", "--features": "4", "--stop-after": "1", "--limit": "12", "--shares": "4"}
SETTINGS = {"max_length": "32", "warmup": "2", "eval_every": "1", "eval_examples": "4", "width": "16",
            "ff_width": "16"}
# Letters that stand for a user's own names.
PLACES = {"METHOD": "linformer", "NAME": "nystrom", "TASK": "listops", "L": "1", "SETTING": "--set dropout=0.05",
          "vmean,…": "vmean,linformer"}
AFTER = {"--task": "listops", "--run": "runs/run", "--data": "datasets", "--model": "encoder", "--from": "encoder",
         "TASK": "listops", "ATTENTION": "vmean"}

# Commands before a page's first: its sentences say that they were given.
PACK = "skytape data --task corpus --from texts --length 32"
RUN = "skytape train --task text --data datasets --out runs/run --steps 3 --batch 4 --attention softmax " \
      "--set max_length=64"
BEFORE = {"train/results/masked-language.md": [PACK], "train/results/studies.md": [RUN], STUDIES: [RUN],
          "train/results/arena-gpu.md": [
              RUN, "skytape train --task pathfinder --recipe large --out runs/p2 --steps 3 --batch 2 --threads 1"]}


def commands_of(page):
    """The commands of a page's blocks and of its sentences, in its order."""
    variables, found, block, prose = {}, [], "", ""
    for line in [*(ROOT / page).read_text(encoding="utf-8").split("\n"), ""]:
        if line.startswith("    "):
            text = line.strip()
            if block and line.startswith("      "):
                block += " " + text
                continue
            for name, value in re.findall(r"(?:^|; )(\w+)=([^\s;]+)(?=;|$)", text):
                variables["$" + name] = value
        found += [block] if block else []
        block = ""
        if line.startswith("    "):
            block = " ".join(variables.get(word, word) for word in text.split(" "))
            continue
        prose += line + "\n"
        if line.strip() and not line.startswith(("|", "#")):
            continue
        found += [" ".join(quoted.split()) for quoted in re.findall(r"`([^`]+)`", prose)]
        prose = ""
    programs = r"(\w+=\S+ )*(\$ )?((build/)?skytape(-lab)?|make) \S"
    return [command for command in found if re.match(programs, command)]


def named(words):
    """Words with the reader's names in the place of letters and dots."""
    out = []
    for word in words:
        before = out[-1] if out else ""
        name, equals, value = word.partition("=")
        if word in PLACES:
            out += PLACES[word].split()
        elif word in ("…", "FOLDER"):
            out.append(AFTER[before])
        elif equals and value == "…":
            out.append(f"{name}={AFTER[name]}")
        else:
            out.append(word)
    return out


def small(words):
    """The words of one command of the program, its sizes made small."""
    flags, out, settings, i = dict(SMALL[words[1]]), words[:2], False, 2
    if "--budget" in words:  # a time in place of steps
        flags = flags | {"--budget": "2s"}
        del flags["--steps"]
    if words[1] == "cost" and "--tables" in words:
        read = OF_TABLE[words[words.index("--tables") + 1]]
        flags = {flag: value for flag, value in flags.items() if flag in read}
    if words[1] == "bench" and "--tokens" in words:  # a number of them in place of one of examples
        flags = flags | {"--tokens": "128"}
        del flags["--batch"]
    if words[1] == "bench" and "--recipe" in words:  # which has the features
        del flags["--features"]
    while i < len(words):
        word = words[i]
        i += 1
        out.append(word)
        if word.startswith("--"):
            settings = word == "--set"
        elif settings:
            key = word.partition("=")[0]
            if key in SETTINGS:
                out[-1] = f"{key}={SETTINGS[key]}"
        value = flags.pop(word, None) if word != "--set" else None
        value = value or IF_SAID.get(word)
        if value:
            out.append(value)
            i += 1
    for flag, value in flags.items():
        out += [flag, value] if value else [flag]
    return out


def make_way(words, folder):
    """Takes away what the command would find of an earlier one of its page: each begins anew."""
    said = dict(zip(words, words[1:]))
    if words[1] == "data":
        shutil.rmtree(folder / "datasets" / said["--task"], ignore_errors=True)
    if "--learn-tokens" in said:
        (folder / said["--tokens"].partition(":")[2]).unlink(missing_ok=True)
    if words[1] in ("train", "pretrain") and "--out" not in said:
        shutil.rmtree(folder / "runs" / "again", ignore_errors=True)
        words += ["--out", "runs/again"]
    if "--run" in said and not (folder / said["--run"]).exists():
        words[words.index("--run") + 1] = "runs/again"  # of the train command before


def program_commands(command):
    """Returns the program's commands that a page's command runs: lists of words."""
    words = named(shlex.split(command.removeprefix("$ ")))
    while "=" in words[0]:
        words.pop(0)  # of the environment: nothing here
    if words[0] != "make":
        return [[Path(words[0]).name, *words[1:]]]
    words = [w.replace("=cuda", "=cpu") for w in words if not w.startswith("CUDA=")]
    text = subprocess.run(["make", "-n", "-s", "--no-print-directory", "-o", "all", *words[1:], "CUDA=0"], cwd=ROOT,
                          capture_output=True, text=True, check=True).stdout.replace("\\\n", " ")
    parts = [shlex.split(part) for part in re.split(r";|&&|\|\||\n", text)]
    return [[Path(part[0]).name, *part[1:]] for part in parts if part and part[0].startswith("build/skytape")]


def reviews(folder):
    """IMDb's tree with a few reviews."""
    for split in ("train", "test"):
        for label, word in (("pos", "fine"), ("neg", "poor")):
            for i in range(24):
                file = folder / split / label / f"{i}_{9 if label == 'pos' else 2}.txt"
                file.parent.mkdir(parents=True, exist_ok=True)
                file.write_text(f"A {word} film, number {i} of {split}, with a ship and a lamp in it.")


def longer_encoder(folder):
    """The small BERT of the tests, its table of positions repeated four times."""
    shutil.copytree(ROOT / "tests/goldens/encoders/bert", folder)
    config = json.loads((folder / "config.json").read_text())
    config["max_position_embeddings"] *= 4
    (folder / "config.json").write_text(json.dumps(config))
    file = folder / "model.safetensors"
    whole = file.read_bytes()
    size = 8 + int.from_bytes(whole[:8], "little")
    tensors, data = json.loads(whole[8:size]), b""
    for name, tensor in tensors.items():
        if name == "__metadata__":
            continue
        begin, end = (size + offset for offset in tensor["data_offsets"])
        times = 4 if "position_embeddings" in name else 1
        tensor["shape"][0] *= times
        tensor["data_offsets"] = [len(data), len(data) + times * (end - begin)]
        data += times * whole[begin:end]
    header = json.dumps(tensors).encode()
    file.write_bytes(len(header).to_bytes(8, "little") + header + data)


def prepare(where):
    """Makes the files that users have, and the tasks' prepared data."""
    inputs = where / "inputs"
    sentences = [f"line {i} tells of a ship, a lamp and the river that they go down" for i in range(60)]
    (inputs / "texts").mkdir(parents=True)
    for name in ("texts/all.txt", "lines.txt"):
        (inputs / name).write_text("\n".join(sentences) + "\n")
    (inputs / "reviews.txt").write_text("\n".join(" and ".join([s] * 4) for s in sentences) + "\n")
    rows = [f"{'good' if i % 2 else 'bad'}\t{s}" for i, s in enumerate(sentences)]
    (inputs / "reviews.tsv").write_text("\n".join(rows) + "\n")
    (inputs / "own.csv").write_text("label,text\n" + "\n".join(
        f"{'good' if i % 2 else 'bad'},a {i} word and another" for i in range(60)) + "\n")
    (inputs / "new.csv").write_text("text\na 3 word and another\n")
    longer_encoder(inputs / "encoder")
    reviews(where / "aclImdb")
    with tarfile.open(inputs / "aclImdb_v1.tar.gz", "w:gz") as archive:
        archive.add(where / "aclImdb", "aclImdb")
    cifar = where / "cifar-10-batches-bin"
    cifar.mkdir()
    for i, name in enumerate([*(f"data_batch_{b}" for b in range(1, 6)), "test_batch"]):
        (cifar / f"{name}.bin").write_bytes(b"".join(
            bytes([label]) + bytes((label * 20 + pixel * (i + 3)) % 256 for pixel in range(3072))
            for label in range(10)))
    pairs = where / "aan"
    pairs.mkdir()
    for split in ("train", "eval", "test"):
        (pairs / f"new_aan_pairs.{split}.tsv").write_text("".join(
            f"{i % 2}.0\tA{i}\tB{i}\t{a}\t{b}\n" for i, (a, b) in enumerate(zip(sentences[:24], sentences[1:]))))
    for task, more in {"listops": ["--limit", "60"], "pathfinder": ["--limit", "60"], "pathx": ["--limit", "12"],
                       "text": ["--from", inputs / "aclImdb_v1.tar.gz"], "image": ["--from", cifar],
                       "retrieval": ["--from", pairs]}.items():
        run(["skytape", "data", "--task", task, "--data", inputs / "datasets", *more], where).check_returncode()
    return inputs


def reason_not_here(command):
    """Returns why a command of a page is not run; nothing for one that is."""
    plain = re.sub(r"^(\w+=\S+ )*(\$ )?(build/)?", "", command)
    for start, reason in NOT_HERE.items():
        if plain == start or (reason != "named alone" and plain.startswith(start)):
            return reason
    return None


def run(words, folder):
    """Runs the program that the first word names."""
    environment = os.environ | {"OMP_WAIT_POLICY": "passive", "NO_COLOR": "1"}
    return subprocess.run([ROOT / "build" / words[0], *words[1:]], cwd=folder, env=environment, capture_output=True,
                          text=True, errors="replace", check=False)


def run_page(page, inputs, folder):
    """Returns how many commands of a page passed, and the errors of the others."""
    shutil.copytree(inputs, folder)
    passed, errors = 0, []
    for command in [*BEFORE.get(page, []), *commands_of(page)]:
        if reason_not_here(command):
            continue
        try:
            for words in map(small, program_commands(command)):
                make_way(words, folder)
                done = run(words, folder)
                if done.returncode != 0:
                    raise RuntimeError(f"{shlex.join(words)}\n  exit {done.returncode}: {done.stderr.strip()[-600:]}")
            passed += 1
        except (RuntimeError, KeyError, subprocess.CalledProcessError) as error:
            errors.append(f"ERROR: {page}: {command}\n  {error}")
    return passed, errors


def main():
    with tempfile.TemporaryDirectory(prefix="skytape-pages-") as scratch, ThreadPoolExecutor(os.cpu_count()) as pool:
        inputs = prepare(Path(scratch))
        results = list(pool.map(lambda page: run_page(page, inputs, Path(scratch) / page.replace("/", "-")), PAGES))
    for _, errors in results:
        print("\n".join(errors), end="\n" if errors else "")
    passed, failed = sum(p for p, _ in results), sum(len(e) for _, e in results)
    print(f"{passed} passed, {failed} failed")
    return failed > 0 or passed == 0


if __name__ == "__main__":
    sys.exit(main())
