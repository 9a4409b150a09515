"""Scripts that tests run in a process of their own: a data loader's workers, and DDP."""
import os
import pathlib
import subprocess
import sys
import tempfile

LOADER = '''
import sys, torch, skytape.torch

class Rows(torch.utils.data.Dataset):
    def __len__(self):
        return 6
    def __getitem__(self, i):
        x = torch.full((1, 2, 512, 16), i / 7)
        return skytape.torch.attention("softmax", x, x, x)[0]

if __name__ == "__main__":
    rows = Rows()
    expected = [rows[i] for i in range(6)]  # the parent has computed before
    loader = torch.utils.data.DataLoader(rows, 2, num_workers=2, multiprocessing_context=sys.argv[1],
                                         timeout=120)
    found = torch.cat(list(loader))
    assert (found - torch.stack(expected)).abs().max() < 1e-6
    print("ok")
'''
DDP = '''
import os, pathlib, sys, torch, torch.distributed as dist, torch.multiprocessing as mp, skytape.torch
from torch.nn.parallel import DistributedDataParallel

def work(rank, folder):
    dist.init_process_group("gloo", init_method=f"file://{folder}/rendezvous", rank=rank, world_size=2)
    torch.manual_seed(3 + rank)  # DDP gives all the weights, buffers and seed of the first
    module = skytape.torch.Attention("linformer", 16, 2, length=32, features=8)
    parallel = DistributedDataParallel(module)
    x = torch.randn(2, 4, 32, 16, generator=torch.Generator().manual_seed(1))
    parallel(x[rank]).square().mean().backward()
    mine = [p.grad for p in module.parameters()]
    both = torch.cat([x[0], x[1]])
    module.zero_grad()
    module(both).square().mean().backward()
    assert all((a - p.grad).abs().max() < 1e-6 for a, p in zip(mine, module.parameters()))
    pathlib.Path(folder, f"done{rank}").touch()
    dist.destroy_process_group()

if __name__ == "__main__":
    mp.spawn(work, (sys.argv[1],), 2)
    assert all(pathlib.Path(sys.argv[1], f"done{rank}").exists() for rank in (0, 1))
    print("ok")
'''


def run_script(text, *arguments):
    """Returns the output of a script, after its end."""
    with tempfile.TemporaryDirectory() as folder:
        file = pathlib.Path(folder, "script.py")
        file.write_text(text)
        done = subprocess.run([sys.executable, "-W", "ignore", file, *arguments], capture_output=True,
                              text=True, timeout=300, env={**os.environ, "OMP_NUM_THREADS": "2"})
        return ((done.stdout.strip().split("\n") or [""])[-1] if done.returncode == 0
                else done.stdout + done.stderr)
