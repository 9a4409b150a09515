"""Runs the tests of the Python module; the last line counts them. What this interpreter lacks is said."""
import pathlib
import sys
import unittest

suite = unittest.defaultTestLoader.discover(pathlib.Path(__file__).parent, "*_test.py")
result = unittest.TextTestRunner(verbosity=2).run(suite)
failed = len(result.failures) + len(result.errors)
for case, reason in result.skipped:
    print(f"skipped, {reason}: {case}")
print(f"{result.testsRun - failed - len(result.skipped)} passed, {failed} failed", flush=True)
sys.exit(failed > 0)
