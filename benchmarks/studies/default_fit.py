"""Run what `sparse-lds fit` does by default on every data set: seconds, least R, the structure chosen, and the skill.

python benchmarks default_fit --out results/default_fit               # all data sets but those kept unseen
python benchmarks default_fit --only "pbcseq;labs 8h, gaps"           # some

"least R" is the smallest eigenvalue of R as a share of the channel's variance. A run that is interrupted goes on.
"""

import argparse
import json
import tempfile
import time
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

import jax
import numpy as np
import pandas as pd
from longitudinal import DATASETS

from sparse_lds.experiments.app.fitting import Model, fit_job
from sparse_lds.models.files import write_whole


def one_fit(name: str, file: Path) -> None:
    """Fit a data set as the command line does, and write what is known of the fit."""
    jax.config.update("jax_enable_x64", True)
    cohort = next(d for d in DATASETS if d.name == name).load().standardize()
    said: list[str] = []
    with tempfile.TemporaryDirectory() as folder:
        start = time.perf_counter()
        fit = fit_job(cohort, Path(folder), Model(), seed=0, say=said.append, progress=False)
        seconds = time.perf_counter() - start
        skill = pd.read_csv(Path(folder) / "skill.csv", index_col=0)
    best = skill["error"].drop("this model").idxmin()
    result = {
        "data": name,
        "sequences": len(cohort),
        "seconds": seconds,
        "structure": str(fit.constraints),
        "prior": str(fit.prior),
        "least R": float(np.linalg.eigvalsh(fit.params.R)[0]),  # channels have variance 1
        "error": float(skill.loc["this model", "error"]),
        "best baseline": best,
        "its error": float(skill.loc[best, "error"]),
        "skill": float(skill.loc[best, "skill"]),
        "p": float(skill.loc[best, "p"]),
        "converged": fit.converged,
        "warnings": list(fit.warnings),
        "said": said,
    }
    write_whole(file, json.dumps(result, indent=1))


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--only", default="", help="data sets, with semicolons")
    parser.add_argument("--workers", type=int, default=1, help="processes; 1 where seconds count")
    parser.add_argument("--out", type=Path, default=Path("results/default_fit"))
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    wanted = [name.strip() for name in args.only.split(";") if name.strip()]
    names = [d.name for d in DATASETS if (d.name in wanted if wanted else d.role != "unseen")]
    files = {name: args.out / f"{name.replace(' ', '-').replace(',', '')}.json" for name in names}
    with ProcessPoolExecutor(args.workers, mp_context=get_context("spawn")) as pool:
        jobs = {n: pool.submit(one_fit, n, f) for n, f in files.items() if not f.exists()}
        for name, job in jobs.items():
            print(f"{name}: {job.exception() or 'done'}", flush=True)
    rows = [json.loads(file.read_text()) for file in files.values() if file.exists()]
    table = pd.DataFrame(rows).drop(columns=["warnings", "said"])
    table.to_csv(args.out / "default_fit.csv", index=False)
    pd.set_option("display.width", 250, "display.max_columns", 20)
    print(table.to_string(index=False, float_format=lambda x: f"{x:.3g}"))


if __name__ == "__main__":
    main()
