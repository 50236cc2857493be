"""Models with inputs on many random problems: against one dense Gaussian a sequence, and whether a fit ever falls.

python benchmarks inputs                 # 200 problems each; --problems 20 for fewer
python benchmarks inputs --only fits     # the fits alone

Tables go to benchmarks/results/inputs: errors.csv and rises.csv.
"""

import argparse
import importlib
import sys
from collections.abc import Iterable
from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from sparse_lds.inference import fit_map
from sparse_lds.models import Laplace, fisher_score
from sparse_lds.models.kalman.prepare import arrange, prepare, shifted

sys.path.append(str(Path(__file__).resolve().parents[2] / "tests"))
oracles: Any = importlib.import_module("oracles")  # the dense Gaussians of the tests

RESULTS = Path(__file__).resolve().parents[1] / "results" / "inputs"
SHAPES = (2, 3, 4, 6), (4, 2, 3, 5)  # l, d, N, T
of_data = jax.jit(lambda params, data: (data.expected_statistics(params), data.score(params)))


def errors(seed: int) -> dict[str, float]:
    """Return the largest relative error of each sum and gradient, for a random problem."""
    shape, gaps = SHAPES[seed % 2], seed % 4 > 1
    params, cohort = oracles.random_problem(seed, shape, gaps=gaps, ragged=seed % 3 == 1, p=2)
    while cohort.n_observed == 0:  # all gradients are 0 then, and errors have no scale
        seed += 1000
        params, cohort = oracles.random_problem(seed, shape, gaps=gaps, ragged=seed % 3 == 1, p=2)
    params = jax.tree.map(jnp.asarray, params)
    if gaps:  # one route, so that problems of a shape share a program
        data = shifted(partial(arrange, multiple=1), cohort, jnp.float64)
    else:
        data = prepare(cohort, jnp.float64)
    stats = oracles.statistics(params, cohort)
    wanted = stats, fisher_score(params, stats)
    found = {}
    pairs = jax.tree_util.tree_leaves_with_path(of_data(params, data))
    for (path, a), b in zip(pairs, jax.tree.leaves(wanted), strict=True):
        size = np.abs(b).max(initial=0.0)
        name = jax.tree_util.keystr(path)
        found[name] = float(np.abs(np.asarray(a) - b).max(initial=0.0) / (size if size else 1.0))
    return found


def least_rise(seed: int) -> float:
    """Return the least change of the objective in 25 steps of plain EM, for a random problem.

    Every other one has the prior on B too, and every second of these gaps.
    """
    gaps = seed % 2 > 0
    params, cohort = oracles.random_problem(seed, SHAPES[0], gaps=gaps, p=2, radius=0.8)
    beta = [0.0, 1.0, 10.0][seed % 3]
    prior = Laplace(beta, beta_B=[None, 2.0][seed // 2 % 2])
    fit = fit_map(cohort, 2, prior, init=params, accelerate=False, max_iter=25, tol=0.0)
    size = 1 + np.abs(fit.objective[:-1])
    return float((np.diff(fit.objective) / size).min())


def save(name: str, columns: tuple[str, str], rows: Iterable[tuple[Any, float]]) -> None:
    """Write a table of two columns."""
    lines = [",".join(columns), *(f"{key},{value:.3e}" for key, value in rows)]
    (RESULTS / name).write_text("\n".join(lines) + "\n")


def main() -> None:
    """Print and save the largest errors and the least rise."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--problems", type=int, default=200)
    parser.add_argument("--only", choices=["errors", "fits"])
    asked = parser.parse_args()
    jax.config.update("jax_enable_x64", True)
    RESULTS.mkdir(parents=True, exist_ok=True)
    if asked.only != "fits":
        compare(asked.problems)
    if asked.only != "errors":
        climb(asked.problems)


def compare(n: int) -> None:
    """Print and save the largest errors of all sums and gradients on n problems."""
    worst: dict[str, float] = {}
    for seed in range(n):
        for name, error in errors(seed).items():
            worst[name] = max(worst.get(name, 0.0), error)
    for name, error in sorted(worst.items(), key=lambda item: -item[1])[:8]:
        print(f"{name:24} {error:.1e}")
    print(
        f"largest relative error of {len(worst)} sums and gradients on {n} problems: "
        f"{max(worst.values()):.1e}",
        flush=True,
    )
    save("errors.csv", ("quantity", "largest_relative_error"), sorted(worst.items()))


def climb(n: int) -> None:
    """Print and save the least change of the objective in n fits."""
    rises = [least_rise(seed) for seed in range(n)]
    save("rises.csv", ("problem", "least_relative_change"), enumerate(rises))
    print(f"least relative change of the objective in {n} fits: {min(rises):.1e}")


if __name__ == "__main__":
    main()
