"""Measure the peak memory of one E-step on 1,000,000 time steps (N = 20,000, T = 50, l = 5, d = 3).

python benchmarks memory                # no gaps
python benchmarks memory --gaps 0.1     # a tenth of the cells missing
"""

import argparse
from functools import partial

import jax
import numpy as np
from estep import problem
from timing import peak_memory, timed

from sparse_lds.models import expected_statistics


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--gaps", type=float, default=0.0, help="fraction of cells missing")
    args = parser.parse_args()
    jax.config.update("jax_enable_x64", True)
    params, cohort = problem(5, 3, 20_000, 50, args.gaps)
    print(f"{cohort}: {peak_memory():.2f} GB before")
    for name, weights in (("default", None), ("every sequence", np.ones(len(cohort)))):
        for call in ("first", "second"):
            _, took = timed(partial(expected_statistics, params, cohort, weights))
            print(f"E-step, {name}, {call} call: {took:.2f} s, peak so far {peak_memory():.2f} GB")


if __name__ == "__main__":
    main()
