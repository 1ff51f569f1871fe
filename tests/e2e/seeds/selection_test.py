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
import harness  # noqa: E402
import run  # noqa: E402

SHIM = os.environ.get("BATON_SHIM") or bring_up.shim_folder()


def why_no_ranks():
    """None if engines have several ranks, else what one says that was asked for two."""
    into = []
    try:
        harness.ServingTest.engine("probe", "--tensor-parallel-size", "2", into=into)
        return None
    except AssertionError as error:
        return str(error).strip().splitlines()[-1]
    finally:
        for process in into:
            process.close()


@unittest.skipUnless(SHIM, "the shim folder with the documents' programs is not there")
class Selection(unittest.TestCase):
    def setUp(self):
        self.work = tempfile.mkdtemp(prefix="baton-seeds-")
        self.addCleanup(shutil.rmtree, self.work, ignore_errors=True)

    def test_our_own_documents_with_one_rank_engines(self):
        self.assertEqual(run.main(["--docs", str(HERE / "testdata"), "--flatten", "--work", self.work]), 0)

    def test_our_own_documents_with_their_ranks(self):
        if reason := why_no_ranks():
            self.skipTest(reason)
        chosen = ["--only", "deepseek", "--only", "k2.6"]
        self.assertEqual(run.main(["--docs", str(HERE / "testdata"), "--work", self.work, *chosen]), 0)

    @unittest.skipUnless(os.environ.get("BATON_SEEDS_DOCS"), "BATON_SEEDS_DOCS names no folder of the documents")
    def test_the_vendors_documents_with_one_rank_engines(self):
        self.assertEqual(run.main(["--docs", os.environ["BATON_SEEDS_DOCS"], "--flatten", "--work", self.work]), 0)


if __name__ == "__main__":
    unittest.main()
