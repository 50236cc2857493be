"""Kill commands at their writes, fill the disk, run two at once, and look whether anything is lost or mixed.

python benchmarks faults [--kills 50] [--seed 0] [--only forecast,fit]

A command is killed (SIGKILL, at the n-th rename of a file, n by the seed), then run again: its files must be those of a
run that was never killed, bit for bit. The disk is a tmpfs of a few pages, where the system lets us mount one.
"""

import argparse
import os
import random
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from sparse_lds.experiments.synthetic import synthetic_labs

# a child that kills itself before its n-th rename; workers of table1 count their own
CHILD = """
import os, signal, sys
at, real, count = int(sys.argv.pop(1)), os.replace, [0]
def dying(*args, **kwargs):
    if count[0] == at:
        os.kill(os.getpid(), signal.SIGKILL)
    count[0] += 1
    return real(*args, **kwargs)
os.replace = os.rename = dying
from pathlib import Path
Path.replace = lambda self, target: dying(self, target) or Path(target)
from sparse_lds.experiments.app.cli import main
if __name__ == "__main__":
    main()
"""
NEVER = 10**9
SMALL = ["--states", "1", "--own-levels", "no", "--beta", "5", "--starts", "1", "--max-iter", "5"]
SAMPLES = ["--draws", "20", "--warmup", "20", "--chains", "2"]
COMMANDS = {  # name -> its arguments, what it needs before, the files that it makes, how many renames it has
    "fit": (["fit", "{data}", *SMALL, "--out", "{out}"], [], ["fit.json", "A.csv", "skill.csv", "source.json"], 16),
    "forecast": (["forecast", "{out}", "--horizon", "2"], ["fit"], ["forecast.csv"], 1),
    "posterior": (["posterior", "{out}", *SAMPLES], ["fit"], ["posterior_parts/chain0.npz", "posterior.nc"], 10),
    "table1": (
        ["table1", "{data}", "--states", "2", "--sizes", "10", "--repetitions", "2", "--starts", "1", "--workers", "1",
         "--out", "{out}"], [], ["table1.csv", "table1.txt", "figure1.png"], 10,
    ),
    "demo": (["demo", "--patients", "8", "--states", "1", *SAMPLES, "--force", "--out", "{out}"], [],
             ["fit.json", "forecast.csv", "comparison.csv"], 20),
}  # fmt: skip


def call(
    name: str, home: Path, out: Path, *more: str, at: int = NEVER
) -> subprocess.CompletedProcess:
    """Run a command in a process of its own, which kills itself at its rename number `at`."""
    words = {"data": str(home / "labs.csv"), "out": str(out)}
    args = [a.format(**words) for a in COMMANDS[name][0]]
    command = [sys.executable, str(home / "child.py"), str(at), *args, *more]
    return subprocess.run(command, capture_output=True, text=True, timeout=900)


def kills(home: Path, names: list[str], n: int, seed: int) -> list[tuple]:
    """Kill each command at some of its writes; return name, rename, how it ended, and whether all is as it should."""
    rng, rows = random.Random(seed), []
    for name in names:
        _, before, files, renames = COMMANDS[name]
        ready = home / f"{name}-ready"
        ready.mkdir()
        for other in before:
            assert call(other, home, ready).returncode == 0
        whole = shutil.copytree(ready, home / f"{name}-whole")
        assert call(name, home, whole).returncode == 0
        for at in sorted(rng.sample(range(renames), min(renames, -(-n // len(names))))):
            out = shutil.copytree(ready, home / f"{name}-{at}")
            first = call(name, home, out, at=at)
            again = call(name, home, out)
            if first.returncode == 0 and "is there already" in again.stderr:  # it had ended
                again = first
            same = [
                (out / f).exists() and (out / f).read_bytes() == (whole / f).read_bytes()
                for f in files
            ]
            ended = "killed" if first.returncode < 0 else "had ended"
            rows.append((name, at, ended, again.returncode == 0 and all(same)))
            verdict = "the same" if rows[-1][3] else "LOST"
            print(f"{name}, killed at rename {at} ({ended}): {verdict}", flush=True)
            if not rows[-1][3]:
                print(again.stderr[-500:], dict(zip(files, same, strict=True)))
            shutil.rmtree(out)
    return rows


def full_disk(home: Path) -> str:
    """Forecast onto a disk that is full: nothing is left behind, and the rerun elsewhere is not blocked."""
    disk = home / "disk"
    disk.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=256k", "none", str(disk)]
    mounted = subprocess.run(mount, capture_output=True)
    if mounted.returncode:
        return "not tried: the system lets us mount no tmpfs"
    try:
        out = disk / "out"
        made = call("fit", home, out)
        if made.returncode:
            return f"FAILED before the disk was full: {made.stderr[-200:]}"
        filler = disk / "filler"
        room = os.statvfs(disk).f_bavail * os.statvfs(disk).f_frsize
        filler.write_bytes(b"x" * max(0, room - 4096))
        found = []
        for name, file in (("forecast", "forecast.csv"), ("posterior", "posterior.nc")):
            full = call(name, home, out)
            clear = full.returncode == 2 and "No space left" in full.stderr
            found.append(clear and not (out / file).exists())
        filler.unlink()
        found.append(call("forecast", home, out).returncode == 0)
        good = "clear errors, no file in part, the rerun works"
        return good if all(found) else f"FAILED: {found}"
    finally:
        subprocess.run(["umount", str(disk)], check=False)


def two_at_once(home: Path) -> str:
    """Start the same fit twice: one ends well, the other says so in a line."""
    out = home / "twice"
    words = {"data": str(home / "labs.csv"), "out": str(out)}
    args = [a.format(**words) for a in COMMANDS["fit"][0]]
    command = [sys.executable, str(home / "child.py"), str(NEVER), *args]
    streams = {"stdout": subprocess.DEVNULL, "stderr": subprocess.PIPE, "text": True}
    pair = [subprocess.Popen(command, **streams) for _ in range(2)]
    said = [p.communicate(timeout=900)[1].strip() for p in pair]
    codes = sorted(p.returncode for p in pair)
    lines = [s for s, p in zip(said, pair, strict=True) if p.returncode == 2]
    good = (
        codes == [0, 2]
        and lines[0].count("\n") == 0
        and call("forecast", home, out).returncode == 0
    )
    return "one wins, the other says so in a line" if good else f"FAILED: {codes} {said}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--kills", type=int, default=50)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", default=",".join(COMMANDS), help="commands to kill, with commas")
    args = parser.parse_args()
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    with tempfile.TemporaryDirectory() as name:
        home = Path(name)
        os.environ.setdefault("XDG_CACHE_HOME", str(home / "cache"))
        (home / "child.py").write_text(CHILD)
        synthetic_labs(n_patients=20).frame.to_csv(home / "labs.csv", index=False)
        print(f"two at once: {two_at_once(home)}", flush=True)
        print(f"full disk: {full_disk(home)}", flush=True)
        rows = kills(home, args.only.split(","), args.kills, args.seed) if args.kills else []
    died = sum(ended == "killed" for _, _, ended, _ in rows)
    lost = sum(not good for *_, good in rows)
    print(f"seed {args.seed}: {len(rows)} runs, {died} killed; lost or mixed: {lost}")


if __name__ == "__main__":
    main()
