"""Runs the tests of the Python module; the last line counts them. What this interpreter lacks is said.

  run.py          with PyTorch, a few methods in one setting each
  run.py whole    with PyTorch, all methods in all settings
"""
import os
import pathlib
import sys
import unittest

if sys.argv[1:] not in ([], ["whole"]):
    sys.exit(f"run.py: expected nothing or whole, got {' '.join(sys.argv[1:])}")
os.environ["SKYTAPE_TESTS"] = "".join(sys.argv[1:])


class Counted(unittest.TextTestResult):
    passed = 0

    def addSuccess(self, test):
        self.passed += 1
        super().addSuccess(test)


suite = unittest.defaultTestLoader.discover(pathlib.Path(__file__).parent, "*_test.py")
result = unittest.TextTestRunner(verbosity=2, resultclass=Counted).run(suite)
failed = len(result.failures) + len(result.errors)
for case, reason in result.skipped:
    print(f"skipped, {reason}: {case}")
print(f"{result.passed} passed, {failed} failed", flush=True)
sys.exit(failed > 0)
