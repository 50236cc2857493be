"""Measure what is larger than memory: one pass, iterations, binning of raw files, and how time grows.

python benchmarks scale complete --sequences 2000000     # one pass over a folder of Parquet, EM after it
python benchmarks scale gappy --sequences 200000         # EM that streams sequences with 20 % gaps
python benchmarks scale bin --rows 50000000 --check      # sparse-lds bin, and the same in memory
python benchmarks scale growth                           # time of an iteration as N, T, l, d, gaps, devices double
python benchmarks scale growth --quick                   # smaller, to see that it runs; --quick works for all

Each part runs in processes of its own, so that its peak memory is its own.
"""

import argparse
import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
from timing import peak_memory

T, D, STATES = 20, 3, 3
_PART = 50_000  # sequences of a file


# ---- what runs in a process of its own


def write_folder(path: str, sequences: int, gaps: float) -> dict:
    """Write a cohort of random walks, part by part."""
    from sparse_lds.models import Cohort
    from sparse_lds.models.disk.folder import new_folder, write_part

    folder, rng = new_folder(path), np.random.default_rng(0)
    for first in range(0, sequences, _PART):
        n = min(_PART, sequences - first)
        y = rng.normal(size=(n, T, D)).cumsum(1)
        y[rng.random(y.shape) < gaps] = np.nan
        cohort = Cohort.from_array(y, ids=range(first, first + n))
        write_part(cohort, folder / f"part-{first:010d}.parquet")
    return {"megabytes": sum(f.stat().st_size for f in folder.iterdir()) / 1e6}


def read_alone(path: str) -> dict:
    """Read all batches of a folder, and do nothing with them."""
    from sparse_lds.models import open_cohort

    cohort, seconds = open_cohort(path), []
    for _ in range(2):  # the second time files are in the system's cache, as they are for the pass
        start = time.perf_counter()
        for fragment in cohort.source.files:
            for batch in fragment.to_batches(batch_size=1 << 17, batch_readahead=4):
                assert batch.num_rows
        seconds.append(time.perf_counter() - start)
    return {"seconds": seconds[1], "peak_GB": peak_memory()}


def fit_folder(path: str, iterations: int) -> dict:
    """Make the one pass over a folder, then fit."""
    import jax
    import pyarrow.dataset

    from sparse_lds.inference import fit_em
    from sparse_lds.models import open_cohort

    assert pyarrow.dataset  # imported before the clock starts, as in `read_alone`

    jax.config.update("jax_enable_x64", True)
    found = {"import_GB": peak_memory()}
    start = time.perf_counter()
    cohort = open_cohort(path)
    found["sequences"] = len(cohort)
    found["pass_seconds"] = time.perf_counter() - start
    found["pass_peak_GB"] = peak_memory()
    cohort = cohort.standardize()
    options = {"accelerate": False, "tol": 0.0}
    init = fit_em(cohort, STATES, max_iter=1, **options).params  # compiles
    times = []
    for n in (1, 1 + iterations):
        start = time.perf_counter()
        fit = fit_em(cohort, STATES, init=init, max_iter=n, **options)
        times.append(time.perf_counter() - start)
    found["seconds_an_iteration"] = (times[1] - times[0]) / iterations
    found["log_likelihood"] = fit.log_likelihood
    found["peak_GB"] = peak_memory()
    return found


def write_labs(path: str, rows: int) -> dict:
    """Write lab results of patients in no order, 100 values each, in Parquet files."""
    import pandas as pd

    folder, rng = Path(path), np.random.default_rng(0)
    folder.mkdir()
    patients, step = max(rows // 100, 1), 2_000_000
    for first in range(0, rows, step):
        n = min(step, rows - first)
        frame = pd.DataFrame(
            {
                "id": rng.integers(0, patients, n),
                "time": rng.uniform(0, 200, n).round(2),
                "test": pd.Categorical.from_codes(rng.integers(0, 3, n), ["MCH", "MCHC", "MCV"]),
                "value": rng.normal(30, 3, n).round(1),
            }
        )
        frame.to_parquet(folder / f"labs-{first:010d}.parquet", index=False)
    return {
        "patients": patients,
        "megabytes": sum(f.stat().st_size for f in folder.iterdir()) / 1e6,
    }


def bin_streaming(labs: str, out: str) -> dict:
    """Bin lab files on disk."""
    from sparse_lds.experiments.labs import bin_to_disk

    start = time.perf_counter()
    made = bin_to_disk(labs, out, step="8h", min_panels=3)
    seconds = time.perf_counter() - start
    return {"sequences": made.n_sequences, "seconds": seconds, "peak_GB": peak_memory()}


def digest(labs: str, out: str) -> dict:
    """Bin all files in memory, and compare with the folder sequence by sequence."""
    import pandas as pd

    from sparse_lds.experiments.labs import bin_labs, labs_from_frame
    from sparse_lds.models import open_cohort

    def hashed(ids, sequences):
        rows = zip(ids, sequences, strict=True)
        each = (
            hashlib.sha256(str(i).encode() + np.ascontiguousarray(y).tobytes()) for i, y in rows
        )
        return sorted(x.hexdigest() for x in each)

    frame = pd.concat(pd.read_parquet(f) for f in sorted(Path(labs).iterdir()))
    frame["test"] = frame["test"].astype(str)
    cohort = bin_labs(labs_from_frame(frame), step="8h", min_panels=3, gaps="missing").cohort
    wanted = hashed(cohort.ids, cohort.sequences())
    found, disk = [], open_cohort(out)
    for file in range(len(disk.source.files)):
        for part in disk.source.batches(file):
            each = np.split(part.values, np.cumsum(part.lengths)[:-1])
            found += hashed(part.ids.tolist(), each)
    return {"same": sorted(found) == wanted, "in_memory_peak_GB": peak_memory()}


def iteration(N: int, T: int, l: int, d: int, gaps: float, devices: int, repeats: int) -> dict:
    """Time an EM iteration of a cohort in memory, on so many devices."""
    import jax
    from jax.sharding import Mesh

    from sparse_lds.inference.constraints import Constraints
    from sparse_lds.inference.map.program import pose, run, unevaluated
    from sparse_lds.inference.map.starting_values import initial_params
    from sparse_lds.models import Cohort, Flat

    jax.config.update("jax_enable_x64", True)
    rng = np.random.default_rng(0)
    y = rng.normal(size=(N, T, d)).cumsum(1)
    y[rng.random(y.shape) < gaps] = np.nan
    cohort = Cohort.from_array(y).standardize()
    params = initial_params(cohort, l)
    mesh = Mesh(np.array(jax.devices()[:devices]), ("seq",)) if devices > 1 else None
    problem = pose(cohort, Flat(), params, Constraints(), mesh=mesh)
    state = run(unevaluated(params), problem, Constraints(), 2, 0.0)[0]
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        jax.block_until_ready(run(state, problem, Constraints(), 5, 0.0))
        times.append((time.perf_counter() - start) / 5)
    return {"seconds": float(np.median(times))}


# ---- what starts these processes


def apart(name: str, *arguments, devices: int = 1) -> dict:
    """Call a function of this file in a process of its own; return what it returns."""
    flags = f"{os.environ.get('XLA_FLAGS', '')} --xla_force_host_platform_device_count={devices}"
    env = os.environ | {"OPENBLAS_NUM_THREADS": "1", "XLA_FLAGS": flags}
    call = [sys.executable, __file__, "call", json.dumps([name, *arguments])]
    done = subprocess.run(call, env=env, capture_output=True, text=True)
    if done.returncode:
        sys.exit(done.stderr)
    return json.loads(done.stdout.splitlines()[-1])


def told(title: str, found: dict) -> None:
    """Print what was found."""
    numbers = (f"{k} {v:.4g}" if isinstance(v, float) else f"{k} {v}" for k, v in found.items())
    print(f"{title}: {', '.join(numbers)}", flush=True)


def on_disk(sequences: int, gaps: float, iterations: int, place: str) -> None:
    """Measure a pass over a folder, and fits to it."""
    path = str(Path(place) / "cohort")
    told("written", apart("write_folder", path, sequences, gaps))
    alone = apart("read_alone", path)
    told("reading alone", alone)
    found = apart("fit_folder", path, iterations)
    told("fit", found)
    print(f"pass / reading alone: {found['pass_seconds'] / alone['seconds']:.2f} (bar: 3)")
    print(f"peak: {found['peak_GB']:.2f} GB (bar: 1)")


def binned(rows: int, check: bool, place: str) -> None:
    """Measure the binning of raw files."""
    labs, out = str(Path(place) / "labs"), str(Path(place) / "cohort")
    told("written", apart("write_labs", labs, rows))
    found = apart("bin_streaming", labs, out)
    told("bin", found)
    print(f"peak: {found['peak_GB']:.2f} GB (bar: 1)")
    if check:
        told("in memory", apart("digest", labs, out))


def growth(quick: bool) -> None:
    """Measure an iteration as each size doubles; print exponents, and the model of time that fits them."""
    base = {"N": 2000, "T": 20, "l": 4, "d": 3, "gaps": 0.2, "devices": 1}
    if quick:
        base |= {"N": 200, "T": 8, "l": 2}
    repeats = 2 if quick else 7
    for name, gaps in (("complete", 0.0), ("20 % gaps", 0.2)):
        first = base | {"gaps": gaps}
        rows = [first]
        for size in ("N", "T", "l", "d"):
            rows += [first | {size: 2 * first[size]}, first | {size: 4 * first[size]}]
        rows += [first | {"devices": 2}] + ([first | {"gaps": 2 * gaps}] if gaps else [])
        times = [
            apart("iteration", *row.values(), repeats, devices=row["devices"])["seconds"]
            for row in rows
        ]
        print(f"\n{name}: an iteration at {first} takes {1e3 * times[0]:.3g} ms")
        print("| doubled | x 2 (ms) | x 4 (ms) | exponent |\n|---|---|---|---|")
        power = {}
        for i, size in enumerate(("N", "T", "l", "d")):
            two, four = times[1 + 2 * i : 3 + 2 * i]
            power[size] = np.polyfit(np.log([1, 2, 4]), np.log([times[0], two, four]), 1)[0]
            print(f"| {size} | {1e3 * two:.3g} | {1e3 * four:.3g} | {power[size]:.2f} |")
        print(f"| devices | {1e3 * times[9]:.3g} | | {np.log2(times[9] / times[0]):.2f} |")
        if gaps:
            print(f"| gaps | {1e3 * times[10]:.3g} | | {np.log2(times[10] / times[0]):.2f} |")
        terms = " ".join(f"({k} / {first[k]})^{p:.2f}" for k, p in power.items())
        print(f"model: {1e3 * times[0]:.3g} ms {terms}")


def main():
    if sys.argv[1:2] == ["call"]:
        name, *arguments = json.loads(sys.argv[2])
        print(json.dumps(globals()[name](*arguments)))
        return
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("what", choices=("complete", "gappy", "bin", "growth"))
    parser.add_argument("--sequences", type=int, default=None)
    parser.add_argument("--gaps", type=float, default=0.2, help="share of cells missing (gappy)")
    parser.add_argument("--iterations", type=int, default=None)
    parser.add_argument("--rows", type=int, default=None)
    parser.add_argument("--check", action="store_true", help="compare with binning in memory")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--place", default=None, help="folder for the files, removed at the end")
    args = parser.parse_args()
    place = tempfile.mkdtemp(dir=args.place)
    try:
        if args.what == "complete":
            N = args.sequences or (20_000 if args.quick else 2_000_000)
            on_disk(N, 0.0, args.iterations or 50, place)
        elif args.what == "gappy":
            N = args.sequences or (5_000 if args.quick else 200_000)
            on_disk(N, args.gaps, args.iterations or 3, place)
        elif args.what == "bin":
            binned(args.rows or (100_000 if args.quick else 50_000_000), args.check, place)
        else:
            growth(args.quick)
    finally:
        shutil.rmtree(place, ignore_errors=True)


if __name__ == "__main__":
    main()
