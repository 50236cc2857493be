"""Peak memory of one E-step on 1,000,000 time steps (N = 20,000, T = 50, l = 5, d = 3).

python benchmarks/speed/memory.py                # no gaps
python benchmarks/speed/memory.py --gaps 0.1     # a tenth of the cells missing
"""

import argparse
import resource
import time

import jax
import numpy as np
from estep import problem

from sparse_lds.models import expected_statistics


def peak() -> float:
    """Largest resident set of this process so far, in GB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024**2


def main():
    parser = argparse.ArgumentParser(description="Peak memory of one E-step on 1,000,000 steps.")
    parser.add_argument("--gaps", type=float, default=0.0, help="fraction of cells missing")
    args = parser.parse_args()
    jax.config.update("jax_enable_x64", True)
    params, cohort = problem(5, 3, 20_000, 50, args.gaps)
    print(f"{cohort}: {peak():.2f} GB before")
    for name, weights in (("default", None), ("every sequence", np.ones(len(cohort)))):
        for call in ("first", "second"):
            start = time.perf_counter()
            jax.block_until_ready(expected_statistics(params, cohort, weights))
            seconds = time.perf_counter() - start
            print(f"E-step, {name}, {call} call: {seconds:.2f} s, peak so far {peak():.2f} GB")


if __name__ == "__main__":
    main()
