"""Runs the tests of the Python module; the last line counts them. What this interpreter lacks is said.

  run.py          with PyTorch, a few methods in one setting each
  run.py whole    with PyTorch, all methods in all settings
  run.py FOLDER   the tests of another folder
"""
import os
import pathlib
import sys
import unittest

arguments = sys.argv[1:]
folder = pathlib.Path(__file__).parent
if len(arguments) == 1 and pathlib.Path(arguments[0]).is_dir():
    folder = pathlib.Path(arguments.pop())
if arguments not in ([], ["whole"]):
    sys.exit(f"run.py: expected nothing, whole or a folder, got {' '.join(arguments)}")
os.environ["SKYTAPE_TESTS"] = "".join(arguments)


class Counted(unittest.TextTestResult):
    passed = 0

    def addSuccess(self, test):
        self.passed += 1
        super().addSuccess(test)


suite = unittest.defaultTestLoader.discover(folder, "*_test.py")
result = unittest.TextTestRunner(verbosity=2, resultclass=Counted).run(suite)
failed = len(result.failures) + len(result.errors)
for case, reason in result.skipped:
    print(f"skipped, {reason}: {case}")
print(f"{result.passed} passed, {failed} failed", flush=True)
sys.exit(failed > 0)
