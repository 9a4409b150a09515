"""in_turn.py PLACE BASELINE.py ARGUMENTS…: runs the PyTorch baseline, but holds it back before it times.

Between warming up and timing the baseline calls torch.cuda.reset_peak_memory_stats: there it gives its
cached memory back, creates PLACE.ready and waits for PLACE.go. So many forms compile together, and
one is timed at a time. Eager forms warm up one by one: together they might not fit.
"""
import fcntl
import os
import pathlib
import runpy
import sys
import time

import torch

place = pathlib.Path(sys.argv[1])
parent, one_by_one = os.getppid(), None
if "--compile" not in sys.argv:
    one_by_one = open(place.with_name("warming-up"), "w")
    fcntl.flock(one_by_one, fcntl.LOCK_EX)
reset = torch.cuda.reset_peak_memory_stats


def wait():
    torch.cuda.synchronize()
    torch.cuda.empty_cache()
    if one_by_one:
        one_by_one.close()
    place.with_name(place.name + ".ready").touch()
    while not place.with_name(place.name + ".go").exists():
        if os.getppid() != parent:
            sys.exit("in_turn: the benchmark is over")
        time.sleep(0.05)
    reset()


torch.cuda.reset_peak_memory_stats = wait
sys.argv = sys.argv[2:]
runpy.run_path(sys.argv[0], run_name="__main__")
