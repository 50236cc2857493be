"""Workers of Table 1 end with the process that started them, however it ends; damaged cells are computed again."""

import json
import os
import signal
import subprocess
import sys
import time

import pytest

from sparse_lds.experiments import grid

PARENT = """
import multiprocessing, sys, time
from concurrent.futures import ProcessPoolExecutor
from sparse_lds.experiments import grid
if __name__ == "__main__":
    context = multiprocessing.get_context("spawn")
    pool = ProcessPoolExecutor(1, mp_context=context, initializer=grid._start, initargs=({},))
    pool.submit(time.sleep, 600)
    while not pool._processes:
        time.sleep(0.05)
    pool.submit(print, "begun")
    print(*pool._processes, flush=True)
    time.sleep(600)
"""


def runs(pid):
    """Whether a process is there, and no zombie."""
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False


@pytest.mark.skipif(not os.path.isdir("/proc/self"), reason="looks for processes in /proc")
@pytest.mark.parametrize("sign", [signal.SIGKILL, signal.SIGTERM])
def test_workers_end_with_their_parent(tmp_path, sign):
    script = tmp_path / "parent.py"
    script.write_text(PARENT)
    parent = subprocess.Popen([sys.executable, str(script)], stdout=subprocess.PIPE, text=True)
    assert parent.stdout is not None
    worker = int(parent.stdout.readline().split()[0])
    assert runs(worker)
    parent.send_signal(sign)
    parent.wait()
    parent.stdout.close()
    for _ in range(300):
        if not runs(worker):
            return
        time.sleep(0.1)
    os.kill(worker, signal.SIGKILL)
    pytest.fail("the worker outlived its parent by 30 seconds")


def test_damaged_cells_are_computed_again(tmp_path):
    file = tmp_path / "cell.json"
    assert not grid._is_done(file)
    whole = {"channels": [], **dict.fromkeys(grid.Errors._fields, [1.0])}
    file.write_text(json.dumps(whole))
    assert grid._is_done(file)
    for damaged in ("", "{", json.dumps({"channels": []})):
        file.write_text(damaged)
        with pytest.warns(UserWarning, match="cell.json' is damaged, and computed again"):
            assert not grid._is_done(file)
