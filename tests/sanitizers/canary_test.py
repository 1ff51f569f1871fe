"""canary_test.py BINARY SANITIZER: what this build's sanitizers are for, they see: a report that the end-to-end tests
find in a process's log, and a status that is not 0."""
import pathlib
import subprocess
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "e2e"))
from harness import SANITIZER_REPORT

EXPECTED = {
    "thread": {"race": "data race"},
    "address": {"overflow": "heap-buffer-overflow", "leak": "detected memory leaks",
                "undefined": "signed integer overflow"},
}
BINARY, SANITIZER = sys.argv.pop(1), sys.argv.pop(1)


class Canary(unittest.TestCase):
    def test_what_is_wrong_is_reported_and_ends_the_process(self):
        for wrong, words in EXPECTED[SANITIZER].items():
            with self.subTest(wrong):
                ended = subprocess.run([BINARY, wrong], stderr=subprocess.PIPE, text=True, timeout=60)
                self.assertNotEqual(ended.returncode, 0)
                self.assertIn(words, ended.stderr)
                self.assertRegex(ended.stderr, SANITIZER_REPORT)

    def test_what_is_right_is_not(self):
        ended = subprocess.run([BINARY], stderr=subprocess.PIPE, text=True, timeout=60)
        self.assertEqual((ended.returncode, ended.stderr), (0, ""))


if __name__ == "__main__":
    unittest.main()
