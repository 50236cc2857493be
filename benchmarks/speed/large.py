"""Time fits of very large problems: many sequences, one very long sequence, many states, many channels.

python benchmarks large [--only sequences,steps,states,channels]

Each is a fit in this process; the second fit of `sequences` has its program and its arranged data.
"""

import argparse
import resource
import time

import jax
import numpy as np

from sparse_lds.inference import FitResult, fit_map
from sparse_lds.models import Cohort, Laplace, LDSParams, simulate


def simulated(d: int, N: int, T: int) -> Cohort:
    """Draw a cohort of d channels from four states."""
    rng = np.random.default_rng(0)
    A = rng.normal(size=(4, 4))
    A *= 0.9 / np.abs(np.linalg.eigvals(A)).max()
    eye = np.eye(4)
    params = LDSParams(A, rng.normal(size=(d, 4)), eye, np.eye(d), np.zeros(4), eye)
    return simulate(jax.random.key(0), params, [T] * N).cohort


def timed(what: str, *args, **options) -> FitResult:
    """Fit, and print how long it took and how it ended."""
    began, cpu = time.perf_counter(), time.process_time()
    fit = fit_map(*args, **options)
    seconds, cpu = time.perf_counter() - began, time.process_time() - cpu
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6
    finite = all(np.isfinite(np.asarray(x)).all() for x in (*fit.params, fit.objective))
    end = f"{fit.stop.name} after {fit.n_iter}, {'finite' if finite else 'NOT FINITE'}"
    print(f"{what}: {seconds:.1f} s ({cpu:.1f} of processor), {memory:.1f} GB, {end}", flush=True)
    return fit


def sequences() -> None:
    """Fit 200,000 sequences without gaps; compilation is that of a smaller cohort of the same shapes."""
    y = np.random.default_rng(0).normal(size=(200_000, 20, 5)).cumsum(1)
    timed("2,000 sequences, to compile", Cohort.from_array(y[:2000]), 3, Laplace(10.0), max_iter=20)
    cohort = Cohort.from_array(y)
    for which in ("first", "second"):
        timed(f"200,000 sequences, {which}", cohort, 3, Laplace(10.0), max_iter=20)


def steps() -> None:
    """Fit one sequence of a million steps."""
    cohort = simulated(2, 1, 1_000_000)
    timed("1,000,000 steps of 2 channels", cohort, 2, Laplace(10.0), max_iter=20)


def states() -> None:
    """Fit 60 states."""
    cohort = simulated(6, 100, 40)
    timed("60 states", cohort, 60, Laplace(30.0), Q="identity", max_iter=400)


def channels() -> None:
    """Fit 200 channels."""
    timed("200 channels", simulated(200, 100, 40), 5, Laplace(30.0), Q="identity", max_iter=400)


CASES = {case.__name__: case for case in (sequences, steps, states, channels)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--only", default=",".join(CASES))
    args = parser.parse_args()
    jax.config.update("jax_enable_x64", True)
    for name in args.only.split(","):
        CASES[name]()


if __name__ == "__main__":
    main()
