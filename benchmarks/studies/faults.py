"""Kill commands at their writes and at any moment, fill the disk, run two at once: is anything lost or mixed?

python benchmarks faults [--kills 50] [--seed 0] [--out benchmarks/results/robustness]

Kill k has seed + k, and those that the file kills.jsonl of --out has are not run again. A command is killed (SIGKILL,
its workers too, at the n-th rename of a file or after a share of its time), then run again: its files must be those of
a run that was never killed, bit for bit. A fit that is killed over an older one must leave a folder from which a
forecast is that of the one or the other, or is refused. The disk is a tmpfs of a few pages, where the system lets us
mount one.
"""

import argparse
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

import pandas as pd
from cases import kept

from sparse_lds.experiments.synthetic import synthetic_labs

# a child that kills itself and its workers before its n-th rename, and whose demo has a smaller grid
CHILD = """
import os, signal, sys
at, real, count = int(os.environ.pop("KILL_AT", -1)), os.replace, [0]  # workers never kill
def dying(*args, **kwargs):
    if count[0] == at:
        os.killpg(0, signal.SIGKILL)
    count[0] += 1
    return real(*args, **kwargs)
os.replace = os.rename = dying
from pathlib import Path
Path.replace = lambda self, target: dying(self, target) or Path(target)
from sparse_lds.experiments.app import demo
from sparse_lds.experiments.app.cli import main
from sparse_lds.experiments.grid import Plan
demo.Plan = lambda *args, **kwargs: Plan((2,), (50,), repetitions=1, n_starts=1, n_betas=2, max_iter=5)
if __name__ == "__main__":
    main()
"""


class Command(NamedTuple):
    """A command to kill."""

    args: list[str]
    before: tuple[str, ...]  # commands that it needs
    files: tuple[str, ...]  # that it makes
    renames: int


SMALL = [
    "--states",
    "1",
    "--own-levels",
    "no",
    "--starts",
    "1",
    "--max-iter",
    "5",
    "--out",
    "{out}",
]
SAMPLES = ["--draws", "20", "--warmup", "20", "--chains", "2"]
TABLE = ["--states", "2", "--sizes", "10", "--repetitions", "2", "--starts", "1", "--workers", "1"]
FIT = ("fit.json", "A.csv", "skill.csv", "source.json")
CHAINS = ("posterior_parts/chain0.npz", "posterior.nc")
COMMANDS = {
    "fit": Command(["fit", "{data}", "--beta", "5", *SMALL], (), FIT, 16),
    "refit": Command(["fit", "{data}", "--beta", "9", "--force", *SMALL], ("fit",), FIT, 16),
    "forecast": Command(["forecast", "{out}", "--horizon", "2", "--force"], ("fit",), ("forecast.csv",), 1),
    "posterior": Command(["posterior", "{out}", *SAMPLES], ("fit",), CHAINS, 9),
    "table1": Command(
        ["table1", "{data}", *TABLE, "--out", "{out}"], (), ("table1.csv", "table1.txt", "figure1.png"), 10
    ),
    "demo": Command(
        ["demo", *SAMPLES, "--force", "--out", "{out}"], (), ("fit.json", "forecast.csv", "comparison.csv"), 30
    ),
}  # fmt: skip
TURNS = ["fit", "forecast", "table1", "refit", "posterior", "fit", "forecast", "demo"]


class Home:
    """A folder with data, the child, and for each command what it needs and what it makes if nobody kills it."""

    def __init__(self, folder: Path):
        self.folder, self.known = folder, {}
        (folder / "child.py").write_text(CHILD)
        synthetic_labs(n_patients=20).frame.to_csv(folder / "labs.csv", index=False)

    def start(self, name: str, out: Path, at: int = -1) -> subprocess.Popen:
        """Start a command in a process group of its own, which kills itself at its rename number `at`."""
        words = {"data": str(self.folder / "labs.csv"), "out": str(out)}
        args = [a.format(**words) for a in COMMANDS[name].args]
        command = [sys.executable, str(self.folder / "child.py"), *args]
        quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.PIPE, "text": True}
        environment = {**os.environ, "KILL_AT": str(at)}
        return subprocess.Popen(command, start_new_session=True, env=environment, **quiet)

    def call(self, name: str, out: Path, at: int = -1, seconds: float = 900) -> tuple[int, str]:
        """Run a command, for so many seconds at most; return its exit code, negative if killed, and its errors."""
        process = self.start(name, out, at)
        try:
            said = process.communicate(timeout=seconds)[1]
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            said = process.communicate()[1]
        return process.returncode, said

    def whole(self, name: str) -> tuple[Path, Path, float]:
        """Return the folder that a command needs, the folder that it makes, and its seconds."""
        if name not in self.known:
            ready, made = self.folder / f"{name}-ready", self.folder / f"{name}-whole"
            before = COMMANDS[name].before
            if before:
                shutil.copytree(self.whole(before[0])[1], ready)
            else:
                ready.mkdir()
            shutil.copytree(ready, made)
            began = time.perf_counter()
            code, said = self.call(name, made)
            assert code == 0, said
            self.known[name] = ready, made, time.perf_counter() - began
        return self.known[name]


def kill(home: Home, seed: int) -> dict:
    """Kill the command of a seed, look at what it left, run it again, and compare."""
    rng, name = random.Random(seed), TURNS[seed % len(TURNS)]
    ready, whole, takes = home.whole(name)
    out = shutil.copytree(ready, home.folder / f"{name}-{seed}")
    began, files = time.perf_counter(), COMMANDS[name].files
    if rng.random() < 0.6:
        at = rng.randrange(COMMANDS[name].renames)
        how, (code, _) = f"rename {at}", home.call(name, out, at=at)
    else:
        share = rng.uniform(0.05, 0.5)  # of a run that had to compile
        how, (code, _) = f"{share:.0%} of its time", home.call(name, out, seconds=share * takes)
    mixed = name == "refit" and not _one_of_both(home, out)
    again, said = home.call(name, out)
    if "is there already" in said:  # all of its files were, before it died: they are compared
        again = 0
    same = [
        (out / f).exists() and (out / f).read_bytes() == (whole / f).read_bytes() for f in files
    ]
    shutil.rmtree(out)
    row = {"seed": seed, "command": name, "at": how, "killed": code < 0, "mixed": mixed}
    row |= {"lost": again != 0 or not all(same), "seconds": time.perf_counter() - began}
    if row["lost"]:
        row["said"] = f"exit {again}: {said[-300:]}; same: {same}"
    print(row, flush=True)
    return row


def _one_of_both(home: Home, out: Path) -> bool:
    """Tell whether a forecast from the folder is that of the older or the newer fit, or is refused in a line."""
    copy = shutil.copytree(out, home.folder / "mixed")
    code, said = home.call("forecast", copy)
    found = (copy / "forecast.csv").read_bytes() if code == 0 else b""
    shutil.rmtree(copy)
    if code == 2:
        return said.strip().count("\n") == 0
    allowed = []
    for name in ("fit", "refit"):
        copy = shutil.copytree(home.whole(name)[1], home.folder / "one")
        home.call("forecast", copy)
        allowed.append((copy / "forecast.csv").read_bytes())
        shutil.rmtree(copy)
    return found in allowed


def full_disk(home: Home) -> str:
    """Forecast onto a disk that is full: nothing is left behind, and the rerun elsewhere is not blocked."""
    disk = home.folder / "disk"
    disk.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=256k", "none", str(disk)]
    if subprocess.run(mount, capture_output=True).returncode:
        return "not tried: the system lets us mount no tmpfs"
    try:
        out = disk / "out"
        code, said = home.call("fit", out)
        if code:
            return f"FAILED before the disk was full: {said[-200:]}"
        filler = disk / "filler"
        room = os.statvfs(disk).f_bavail * os.statvfs(disk).f_frsize
        filler.write_bytes(b"x" * max(0, room - 4096))
        found = []
        for name, file in (("forecast", "forecast.csv"), ("posterior", "posterior.nc")):
            code, said = home.call(name, out)
            found.append(code == 2 and "No space left" in said and not (out / file).exists())
        filler.unlink()
        found.append(home.call("forecast", out)[0] == 0)
        good = "clear errors, no file in part, the rerun works"
        return good if all(found) else f"FAILED: {found}"
    finally:
        subprocess.run(["umount", str(disk)], check=False)


def two_at_once(home: Home) -> str:
    """Start the same fit twice: one ends well, the other says so in a line."""
    out = home.folder / "twice"
    pair = [home.start("fit", out) for _ in range(2)]
    said = [p.communicate(timeout=900)[1].strip() for p in pair]
    codes = sorted(p.returncode for p in pair)
    lines = [s for s, p in zip(said, pair, strict=True) if p.returncode == 2]
    good = codes == [0, 2] and "\n" not in lines[0] and home.call("forecast", out)[0] == 0
    return "one wins, the other says so in a line" if good else f"FAILED: {codes} {said}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--kills", type=int, default=50)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results/robustness"))
    parser.add_argument(
        "--report", action="store_true", help="the table of what is there; run nothing"
    )
    args = parser.parse_args()
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    seeds = range(args.seed, args.seed + args.kills)
    with tempfile.TemporaryDirectory() as name:
        os.environ["XDG_CACHE_HOME"] = str(Path(name) / "cache")
        home = Home(Path(name))
        rows = kept(args.out / "kills.jsonl", seeds, lambda seed: kill(home, seed), args.report)
        others = {"two at once": two_at_once, "full disk": full_disk} if not args.report else {}
        found = {what: run(home) for what, run in others.items()}
    table = rows.groupby("command")[["killed", "lost", "mixed"]].sum()
    table = pd.concat([rows.groupby("command").size().rename("runs"), table], axis=1)
    table = pd.concat([table, table.sum().to_frame("all").T]).astype(int)
    table.to_csv(args.out / "kills.csv", index_label="command")
    print(table.to_string())
    print(*(f"{what}: {said}" for what, said in found.items()), sep="\n")


if __name__ == "__main__":
    main()
