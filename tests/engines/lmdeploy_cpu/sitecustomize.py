"""Found by Python at start-up wherever this folder is on PYTHONPATH, so that processes which LMDeploy spawns run on the CPU too."""

import sys

if "lmdeploy" in " ".join(sys.orig_argv) or "multiprocessing" in " ".join(sys.orig_argv):
    import lmdeploy_cpu

    lmdeploy_cpu.install()
