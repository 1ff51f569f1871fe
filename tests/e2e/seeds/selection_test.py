"""Deployments brought up whole: those of our own documents in testdata, and with BATON_SEEDS_DOCS=FOLDER the vendors'."""
import os
import pathlib
import shutil
import sys
import tempfile
import unittest

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent)]
import bring_up  # noqa: E402
import run  # noqa: E402

SHIM = os.environ.get("BATON_SHIM") or bring_up.shim_folder()


@unittest.skipUnless(SHIM, "the shim folder with the documents' programs is not there")
class Selection(unittest.TestCase):
    def setUp(self):
        self.work = tempfile.mkdtemp(prefix="baton-seeds-")
        self.addCleanup(shutil.rmtree, self.work, ignore_errors=True)

    def test_our_own_documents_with_one_rank_engines(self):
        self.assertEqual(run.main(["--docs", str(HERE / "testdata"), "--flatten", "--work", self.work]), 0)

    @unittest.skipUnless(os.environ.get("BATON_SEEDS_DOCS"), "BATON_SEEDS_DOCS names no folder of the documents")
    def test_the_vendors_documents_with_one_rank_engines(self):
        self.assertEqual(run.main(["--docs", os.environ["BATON_SEEDS_DOCS"], "--flatten", "--work", self.work]), 0)


if __name__ == "__main__":
    unittest.main()
