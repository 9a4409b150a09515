"""pip install ./train/python: make builds the engine for this interpreter, setuptools packs it.

SKYTAPE_MAKE holds variables for make, such as "CUDA=0".
"""
import os
import pathlib
import re
import shutil
import subprocess
import sys

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext

ROOT = pathlib.Path(__file__).resolve().parents[2]


class Build(build_ext):
    def build_extension(self, extension):
        if self.editable_mode:
            sys.exit("skytape: there is no editable installation; make python, then PYTHONPATH=build/python")
        options = os.environ.get("SKYTAPE_MAKE", "").split()
        subprocess.check_call(["make", "-C", ROOT, "python", f"PYTHON={sys.executable}", *options])
        target = pathlib.Path(self.get_ext_fullpath(extension.name))
        target.parent.mkdir(parents=True, exist_ok=True)
        built = ROOT / "build/python/skytape"  # what make writes: the engine, its stubs, the version
        for name in (target.name, "version.py", *(stub.name for stub in built.glob("_engine*.pyi")),
                     "_engine"):
            if (built / name).is_dir():
                shutil.copytree(built / name, target.parent / name, dirs_exist_ok=True)
            elif (built / name).exists():
                shutil.copy(built / name, target.parent / name)


version, = re.findall(r"^version: *(.*)$", (ROOT / "CITATION.cff").read_text(encoding="utf-8"), re.M)
setup(version=version, packages=["skytape", "skytape.torch"], ext_modules=[Extension("skytape._engine", [])],
      cmdclass={"build_ext": Build})
