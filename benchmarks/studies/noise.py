"""Run fit, posterior and comparison on data in which no test speaks to any: what would be printed all the same?

python benchmarks noise                     # three kinds of noise, some minutes
python benchmarks noise --seeds 5           # each five times

White noise; white noise around levels of the patients that go together; and the storms of longitudinal.py with the
times of each storm shuffled. "supported" are links that the MAP keeps and the posterior supports, or that it leaves out
against the posterior; "stand" are those of them with the same effect in the other structures that forecast as well.
"""

import argparse
import tempfile
from pathlib import Path

import jax
import numpy as np
import pandas as pd

from sparse_lds.experiments.app.fitting import Model, fit_job
from sparse_lds.experiments.app.structures import read_links
from sparse_lds.inference import compare_map_posterior, diagnose, sample_posterior
from sparse_lds.models import Cohort

N, T, D = 150, 10, 3


def white(rng: np.random.Generator) -> Cohort:
    """Draw white noise."""
    return Cohort.from_array(rng.normal(size=(N, T, D)))


def levels(rng: np.random.Generator) -> Cohort:
    """Draw white noise around levels: the third is the sum of the other two, but for a tenth."""
    two = rng.normal(size=(N, 1, 2))
    level = np.concatenate([two, two.sum(2, keepdims=True) + 0.1 * rng.normal(size=(N, 1, 1))], 2)
    return Cohort.from_array(level + rng.normal(size=(N, T, D)))


def shuffled(rng: np.random.Generator) -> Cohort:
    """Shuffle the first ten steps of storms in time, each channel by itself."""
    from longitudinal import DATASETS

    storms = next(x for x in DATASETS if x.name == "storms").load()
    y = [np.array(storms.sequence(n)[:T]) for n in range(len(storms))]
    return Cohort.from_sequences([np.stack([rng.permutation(c) for c in x.T], 1) for x in y])


KINDS = {"white noise": white, "levels that go together": levels, "storms, shuffled": shuffled}


def one(cohort: Cohort, seed: int, draws: int) -> dict:
    """Return what the whole way says of a cohort."""
    cohort = cohort.standardize()
    said: list[str] = []
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        fit = fit_job(cohort, folder, Model(), seed=seed, say=said.append, progress=False)
        skill = pd.read_csv(folder / "skill.csv", index_col=0)
        links = read_links(folder)
    posterior = sample_posterior(
        jax.random.key(seed), cohort, fit, num_samples=draws, num_chains=2, progress=False
    )
    t = compare_map_posterior(fit, posterior).table
    off = t.index.get_level_values(0) != t.index.get_level_values(1)
    kept = off & ~t["map_zero"] & (t["verdict"] == "supported")
    against = off & t["map_zero"] & (t["verdict"] == "contradicted")
    best = skill["error"].drop("this model").idxmin()
    return {
        "own levels": fit.constraints.own_levels,
        "skill": skill.loc[best, "skill"],
        "p": skill.loc[best, "p"],
        "draws good": diagnose(posterior).ok,
        "links": int(off.sum()),
        "kept": int((off & ~t["map_zero"]).sum()),
        "supported": int((kept | against).sum()),
        "structures": 0 if links is None else 1 + len(links.others),
        "stand": -1 if links is None or not links.others else int(links.stand.sum()),
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--draws", type=int, default=500, help="of each of two chains")
    parser.add_argument("--out", type=Path, default=Path("results/noise"))
    args = parser.parse_args()
    jax.config.update("jax_enable_x64", True)
    args.out.mkdir(parents=True, exist_ok=True)
    pd.set_option("display.width", 200, "display.max_columns", 20)
    rows = []
    for kind, draw in KINDS.items():
        for seed in range(args.seeds):
            found = one(draw(np.random.default_rng(seed)), seed, args.draws)
            rows.append({"data": kind, "seed": seed, **found})
            pd.DataFrame(rows).to_csv(args.out / "noise.csv", index=False)
            print(pd.DataFrame(rows).tail(1).to_string(index=False), flush=True)


if __name__ == "__main__":
    main()
