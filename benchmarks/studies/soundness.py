"""Look for a step that lowers the objective, in `exact` and in `paper`: 200 random problems, complete and gappy.

python benchmarks soundness [--problems 200]
"""

import argparse

import jax
import numpy as np
import pandas as pd

from sparse_lds.inference import Stop, fit_map
from sparse_lds.models import Cohort, GroupLaplace, Laplace, LDSParams, simulate

SHAPES = [(2, 3, 16, 8), (3, 2, 16, 10), (4, 4, 32, 6)]  # l, d, N, T


def covariance(rng, k):
    """Draw a covariance with eigenvalues of at least 0.3."""
    F = rng.normal(size=(k, k))
    return F @ F.T / k + 0.3 * np.eye(k)


def random_params(rng, l, d) -> LDSParams:
    """Draw a stable LDS, to simulate from or to start at."""
    A = rng.normal(size=(l, l))
    A *= rng.uniform(0.3, 0.98) / np.abs(np.linalg.eigvals(A)).max()
    C, pi1 = rng.normal(size=(d, l)), rng.normal(size=l)
    return LDSParams(A, C, covariance(rng, l), covariance(rng, d), pi1, covariance(rng, l))


def problem(seed):
    """Draw a ragged cohort, with gaps or without, its number of states, a prior and a start."""
    rng = np.random.default_rng(seed)
    l, d, N, T = SHAPES[seed % len(SHAPES)]
    lengths = rng.integers(2, T + 1, size=N)
    lengths[0] = T
    cohort = simulate(jax.random.key(seed), random_params(rng, l, d), lengths.tolist()).cohort
    if seed // len(SHAPES) % 2:
        holes = [rng.random(y.shape) < 0.2 for y in cohort.sequences()]
        cohort = Cohort.from_sequences(
            [np.where(h, np.nan, y) for h, y in zip(holes, cohort.sequences(), strict=True)]
        )
    beta = float(10 ** rng.uniform(-1, 1.5))
    prior = Laplace(beta) if seed % 5 else GroupLaplace(beta, "rows")
    return cohort, l, prior, random_params(rng, l, d)


def sound(fit) -> bool:
    """Tell whether everything in the fit is finite and its covariances are definite."""
    covariances = fit.params.Q, fit.params.R, fit.params.V1
    finite = all(np.isfinite(x).all() for x in fit.params) and np.isfinite(fit.objective).all()
    return finite and all(np.linalg.eigvalsh(S)[0] > 0 for S in covariances)


def fall(fit) -> float:
    """Return the largest relative fall of the objective in one iteration, 0 if it never falls."""
    change = np.diff(fit.objective) / np.abs(fit.objective[:-1])
    return max(0.0, -float(change.min()))


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--problems", type=int, default=200)
    args = parser.parse_args()
    jax.config.update("jax_enable_x64", True)
    rows = []
    for seed in range(args.problems):
        cohort, l, prior, init = problem(seed)
        plain = fit_map(cohort, l, prior, init=init, accelerate=False, max_iter=40, tol=0.0)
        fast = fit_map(cohort, l, prior, init=init, max_iter=500)
        paper = fit_map(cohort, l, prior, init=init, variant="paper", max_iter=40, tol=0.0)
        rows.append(
            {
                "gappy": not cohort.complete,
                "plain fall": fall(plain),
                "accelerated fall": fall(fast),
                "sound": sound(plain) and sound(fast),
                "converged": fast.converged,
                "kkt": fast.kkt_residual,
                "drift": fast.stop is Stop.DRIFT,
                "paper fall": fall(paper),
                "paper falls": int(
                    (np.diff(paper.objective) < -1e-9 * np.abs(paper.objective[1:])).sum()
                ),
            }
        )
    t = pd.DataFrame(rows)
    converged = t[t["converged"]]
    print(f"{len(t)} problems, {t['gappy'].sum()} with gaps")
    print(f"exact, plain:       largest relative fall {t['plain fall'].max():.1e}")
    print(f"exact, accelerated: largest relative fall {t['accelerated fall'].max():.1e}")
    print(f"finite, covariances definite: {t['sound'].sum()} of {len(t)}")
    print(
        f"converged within 500 iterations: {len(converged)}, largest residual {converged['kkt'].max():.1e}"
    )
    print(f"stopped for a drift of scales: {t['drift'].sum()}")
    falls = t["paper falls"] > 0
    print(f"paper: fell in {falls.sum()} problems, at most by {t['paper fall'].max():.1e} relative")


if __name__ == "__main__":
    main()
