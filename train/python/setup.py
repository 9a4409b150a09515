"""pip install ./train/python: make builds the engine for this interpreter, setuptools packs it.

SKYTAPE_MAKE holds variables for make, such as "CUDA=0".
"""
import os
import pathlib
import shutil
import subprocess
import sys

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext

ROOT = pathlib.Path(__file__).resolve().parents[2]


class Build(build_ext):
    def build_extension(self, extension):
        options = os.environ.get("SKYTAPE_MAKE", "").split()
        subprocess.check_call(["make", "-C", ROOT, "python", f"PYTHON={sys.executable}", *options])
        target = pathlib.Path(self.get_ext_fullpath(extension.name))
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / "build/python/skytape" / target.name, target)


setup(packages=["skytape"], ext_modules=[Extension("skytape._engine", [])], cmdclass={"build_ext": Build})
