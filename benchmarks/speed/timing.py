"""Measure calls: seconds until the result is ready, medians over repeats, compile time apart, peak memory."""

import resource
import sys
import time

import jax
import numpy as np
import pandas as pd

clock = time.perf_counter  # time.process_time on one core measures beside other work


def timed(f):
    """Call f once; return its result, when it is ready, and the seconds this took."""
    start = clock()
    result = jax.block_until_ready(f())
    return result, clock() - start


def seconds(f, repeats: int = 5) -> float:
    """Return the median seconds of a call of f, after a first call that compiles and is not counted."""
    timed(f)
    return float(np.median([timed(f)[1] for _ in range(repeats)]))


def side_by_side(functions: dict, repeats: int) -> pd.DataFrame:
    """Return a row for each function: the median of its calls ("ms") and its first call, which compiles ("first s").

    The repeats are interleaved, so that all functions see the same noise.
    """
    first = {}
    for name, f in functions.items():
        first[name] = timed(f)[1]
        timed(f)
    times = {name: [] for name in functions}
    for _ in range(repeats):
        for name, f in functions.items():
            timed(f)  # not counted: the caches are the other function's
            times[name].append(timed(f)[1])
    ms = {name: 1e3 * np.median(x) for name, x in times.items()}
    return pd.DataFrame({"ms": ms, "first s": first})


def peak_memory() -> float:
    """Return the largest resident set of this process so far, in GB."""
    unit = 1 if sys.platform == "darwin" else 1024  # bytes there, kibibytes on Linux
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit / 1e9
