"""Kill `sparse-lds table1` (SIGKILL, workers too) at three random moments, run it again, compare its files bit for bit.

python benchmarks kill
"""

import argparse
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from sparse_lds.experiments.synthetic import synthetic_labs

OPTIONS = ["--states", "2,3", "--sizes", "10", "--repetitions", "3", "--starts", "1"]
FILES = ("table1.csv", "cells.csv", "table1.txt", "figure1.png")


def start(data: Path, out: Path) -> subprocess.Popen:
    """Start `sparse-lds table1` in a process group of its own."""
    command = [sys.executable, "-m", "sparse_lds.experiments.app.cli", "table1", str(data)]
    return subprocess.Popen(
        [*command, "--out", str(out), *OPTIONS], start_new_session=True, stdout=subprocess.DEVNULL
    )


def main() -> None:
    argparse.ArgumentParser(description=__doc__.split("\n")[0]).parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        synthetic_labs(n_patients=60).frame.to_csv(folder / "labs.csv", index=False)
        began = time.perf_counter()
        assert start(folder / "labs.csv", folder / "whole").wait() == 0
        seconds = time.perf_counter() - began
        print(f"not interrupted: {seconds:.0f} s", flush=True)
        rng = random.Random()
        for k in range(3):
            process = start(folder / "labs.csv", folder / "killed")
            wait = rng.uniform(0.1, 0.25) * seconds
            ended = "had ended"
            try:
                process.wait(wait)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
                ended = "killed"
            cells = len(list((folder / "killed" / "cells").glob("*.json")))
            print(f"run {k + 1}, {ended} after {wait:.0f} s: {cells} cells are there", flush=True)
        assert start(folder / "labs.csv", folder / "killed").wait() == 0
        for file in FILES:
            one, other = ((folder / run / file).read_bytes() for run in ("whole", "killed"))
            print(f"{file}: {'the same, bit for bit' if one == other else 'DIFFERS'}")


if __name__ == "__main__":
    main()
