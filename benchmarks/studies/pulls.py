"""Compare what the penalty on A pulls towards, by forecasts of held-out patients, with a state for each test.

python benchmarks pulls --out results/pulls                        # the built-in cohort
python benchmarks pulls --labs FILE --gaps missing --hours 24      # a lab file (long, wide or MIMIC)

In each split half of the patients train; β is chosen among them by `select`, by density, for each pull in the same way.
AMAE is the paper's error on the other half, in standardised units. A run that is interrupted goes on.
"""

import argparse
import json
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pandas as pd

from sparse_lds.experiments.baselines import channel_mean, last_value, var1_forecaster
from sparse_lds.experiments.labs import bin_labs, labs_from_frame, read_labs
from sparse_lds.experiments.protocol import evaluate, lds_forecaster, paired_p
from sparse_lds.experiments.synthetic import synthetic_labs
from sparse_lds.inference import Constraints, fit_em, fit_map, select
from sparse_lds.models import Laplace
from sparse_lds.models.files import write_whole

PULLS = {
    "to 0 (the paper)": Laplace(1.0),
    "off the diagonal": Laplace.off_diagonal(1.0),
    "to persistence": Laplace.towards_persistence(1.0),
}
LEVELS = Constraints.levels()


def forecasters(train, n_betas: int, n_folds: int, seed: int) -> dict[str, tuple[Any, dict]]:
    """Return a forecaster for each column of the table, and what is known of its fit."""
    found: dict[str, tuple[Any, dict]] = {
        "last value": (last_value, {}),
        "channel mean": (channel_mean, {}),
        "VAR(1)": (var1_forecaster(train), {}),
    }
    d = train.n_channels
    held = fit_em(
        train,
        d,
        init=LEVELS.first_guess(train)._replace(A=np.eye(d)),
        constraints=LEVELS.holding("A"),
        max_iter=500,
    )
    found["local level"] = lds_forecaster(held.params), {}
    found["OLDS"] = lds_forecaster(fit_em(train, d, constraints=LEVELS, max_iter=500).params), {}
    for name, prior in PULLS.items():
        options: dict[str, Any] = {"constraints": LEVELS, "max_iter": 300}
        chosen = select(train, d, prior, n_betas=n_betas, n_folds=n_folds, seed=seed, **options)
        beta = chosen.best_density.beta
        fit = fit_map(train, d, prior.scaled(beta), constraints=LEVELS, max_iter=1000)
        R = np.diagonal(fit.params.R)
        facts = {"beta": beta, "nonzero": int((~fit.zeros).sum()), "least R": float(R.min())}
        found[f"SLDS {name}"] = lds_forecaster(fit.params), facts
    return found


def one_split(cohort, seed: int, n_betas: int, n_folds: int) -> list[dict]:
    """Return a row for each forecaster: its AMAE, and p against the last value, paired over patients."""
    order = np.random.default_rng(seed).permutation(len(cohort))
    half = len(order) // 2
    train = cohort.take(order[:half]).standardize()
    test = cohort.take(order[half:]).standardize_like(train)
    errors = {
        name: (evaluate(forecaster, test, seed=seed), facts)
        for name, (forecaster, facts) in forecasters(train, n_betas, n_folds, seed).items()
    }
    last = errors["last value"][0]
    return [
        {
            "split": seed,
            "forecaster": name,
            "AMAE": e.mean,
            "p against last value": paired_p(e, last),
            **facts,
        }
        for name, (e, facts) in errors.items()
    ]


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--labs", type=Path, help="a lab file; without it the built-in cohort")
    parser.add_argument("--hours", type=float, default=8.0)
    parser.add_argument("--panels", type=int, default=10)
    parser.add_argument("--gaps", default="interpolate")
    parser.add_argument("--splits", type=int, default=5)
    parser.add_argument("--betas", type=int, default=8)
    parser.add_argument("--folds", type=int, default=5)
    parser.add_argument("--patients", type=int, default=100, help="of the built-in cohort")
    parser.add_argument("--out", type=Path, default=Path("results/pulls"))
    args = parser.parse_args()
    jax.config.update("jax_enable_x64", True)
    pd.set_option("display.width", 200, "display.precision", 3)
    labs = read_labs(args.labs) if args.labs else labs_from_frame(synthetic_labs().frame)
    cohort = bin_labs(labs, hours=args.hours, min_panels=args.panels, gaps=args.gaps).cohort
    if not args.labs:
        cohort = cohort.take(range(args.patients))
    print(cohort)
    args.out.mkdir(parents=True, exist_ok=True)
    rows = []
    for seed in range(args.splits):
        file = args.out / f"split{seed}.json"
        if not file.exists():
            write_whole(file, json.dumps(one_split(cohort, seed, args.betas, args.folds)))
        rows += json.loads(file.read_text())
        print(f"split {seed} is done", flush=True)
    table = pd.DataFrame(rows)
    table.to_csv(args.out / "pulls.csv", index=False)
    numbers = [c for c in table if c not in ("split", "forecaster")]
    print(table.groupby("forecaster", sort=False)[numbers].mean().to_string())


if __name__ == "__main__":
    main()
