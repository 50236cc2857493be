"""Throw bad inputs and random problems at the package: no wrong result, traceback, hang, NaN or false convergence.

python benchmarks fuzz [--inputs 1000] [--fits 2000] [--seed 0] [--out results/fuzz]

Case k has seed + k, and is the same in every run; cases that --out has already are not run again.
"""

import argparse
import io
import json
import signal
import tempfile
import time
import warnings
from collections import Counter
from pathlib import Path

import jax
import numpy as np
import pandas as pd

from sparse_lds.experiments.labs import bin_labs, read_labs
from sparse_lds.experiments.saving import load_fit, save_fit
from sparse_lds.inference import Stop, fit_map
from sparse_lds.models import (
    Cohort,
    GroupLaplace,
    Laplace,
    LDSParams,
    simulate,
    total_log_likelihood,
)

CLEAR = (ValueError, TypeError, OSError, ImportError, ArithmeticError, MemoryError)
JUNK = [
    "", " ", "NA", "nan", "inf", "-inf", "1e400", "1e15", "-1", "0x1F", "1,5", "1.234,5", "1 234", "< 3", "true",
    "today", "2023-01-05", "23-01-05", "05/01/2023", "31/13/2023", "2023-01-05 10:00+02:00", "20230105",
    "1672876800000", "9999-12-31", "=1+1", "$K$", "\x00", "é", "💉", '"', "'", ";", "\n", "x" * 5000, "None", "[]",
]  # fmt: skip
NASTY = [
    None, float("nan"), float("inf"), -1, 0, 1e300, 2**70, "x", "", [], {}, (), True, 1.5, np.zeros(0), 
    np.full((2, 2), np.nan),    np.array(["a"]), object(), b"x", [None], -1e-300, "1e5", range(3), {"A": 1}, float,
]  # fmt: skip
SHAPES = [(1, 2, 8, 6), (2, 3, 16, 8), (3, 2, 16, 10), (4, 4, 24, 6)]  # l, d, N, T
SECONDS = 180  # of processor time, after which a case hangs; a busy machine counts as none


def outcome(case, *args) -> str:
    """Run a case: what it returns, "clear error", "traceback" or "hang"."""

    def late(*_):
        raise TimeoutError("hang")

    before = signal.signal(signal.SIGPROF, late)
    signal.setitimer(signal.ITIMER_PROF, SECONDS)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return case(*args)
    except TimeoutError:
        return "hang"
    except CLEAR as error:
        return "clear error" if len(str(error)) > 15 else f"traceback: {error!r}"
    except Exception as error:
        return f"traceback: {error!r}"[:300]
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)


# ---- bad inputs


def table(rng) -> str:
    """Return a good table of lab results, as the text of a CSV file."""
    rows = [
        (f"p{i}", 8 * t + rng.integers(8), test, round(float(rng.lognormal()), 2))
        for i in range(4)
        for t in range(12)
        for test in ("CREA", "K")
    ]
    return pd.DataFrame(rows, columns=["id", "time", "test", "value"]).to_csv(index=False)


def spoiled_file(rng, folder: Path) -> str:
    """Spoil a good file in one or a few ways, and read it: what is accepted holds only values of the file."""
    lines = [line.split(",") for line in table(rng).splitlines()]
    for _ in range(rng.integers(1, 4)):
        way, junk = rng.integers(8), JUNK[rng.integers(len(JUNK))]
        row, column = rng.integers(len(lines)), rng.integers(4)
        if way <= 2:
            lines[row][column % len(lines[row])] = junk
        elif way == 3:  # a whole column
            for line in lines[1:]:
                line[column % len(line)] = junk
        elif way == 4:
            lines[0][column % len(lines[0])] = lines[0][rng.integers(len(lines[0]))]
        elif way == 5:
            lines[row].pop()
        elif way == 6:
            lines = lines[: rng.integers(len(lines)) + 1]
        else:
            lines[row].append(junk)
        lines = [line or [""] for line in lines]
    mark = rng.choice([",", ",", ";", "\t"])
    content = "\n".join(mark.join(line) for line in lines).encode("utf-8", "surrogatepass")
    if rng.random() < 0.1:
        content = content[: rng.integers(len(content))] + bytes(rng.integers(0, 256, 20).tolist())
    file = folder / f"labs.{rng.choice(['csv', 'csv', 'csv.gz', 'parquet'])}"
    file.write_bytes(content)
    labs = read_labs(file)
    binned = bin_labs(labs, min_panels=int(rng.integers(1, 12)))
    y = binned.cohort.y[binned.cohort.mask]
    low, high = labs.value.min() - 1e-9, labs.value.max() + 1e-9
    inside = np.isfinite(y).all() and low <= y.min() and y.max() <= high
    return "accepted" if inside and "times are from" in str(labs) else "wrong"


def spoiled_argument(rng, folder: Path) -> str:
    """Give one argument of a fit a value that it cannot have: an error, or a fit that is sound."""
    cohort = Cohort.from_array(np.random.default_rng(0).normal(size=(6, 5, 2)))
    good = {"cohort": cohort, "n_states": 2, "prior": Laplace(1.0)}
    names = [
        *good, "init", "n_restarts", "seed", "hold", "diagonal", "Q", "constraints", "priors", "weights",
        "max_iter", "tol", "variant",
    ]  # fmt: skip
    name, value = names[rng.integers(len(names))], NASTY[rng.integers(len(NASTY))]
    try:
        fit = fit_map(**{"max_iter": 2, "accelerate": False, **good, name: value})
    except CLEAR as error:
        if name not in str(error):
            raise RuntimeError(f"{name} = {value!r} is not named: {error!r}") from error
        raise
    return "accepted" if sound(fit) else "wrong"


def spoiled_fit(rng, folder: Path) -> str:
    """Spoil the file of a fit, and load it: an error, or a fit that is sound."""
    if not _saved:
        cohort = Cohort.from_array(np.random.default_rng(0).normal(size=(6, 5, 2)))
        fit = fit_map(cohort, 2, Laplace(1.0), accelerate=False, max_iter=2)
        _saved.append(save_fit(folder / "good.json", fit).read_text())
    file, text = folder / "fit.json", _saved[0]
    if rng.random() < 0.3:
        at = rng.integers(len(text))
        text = text[:at] + JUNK[rng.integers(len(JUNK))] + text[at + rng.integers(5) :]
    else:
        found = json.loads(text)
        place = found
        while True:
            keys = list(place) if isinstance(place, dict) else list(range(len(place)))
            key = keys[rng.integers(len(keys))]
            if not isinstance(place[key], dict | list) or not place[key] or rng.random() < 0.4:
                break
            place = place[key]
        plain = [x for x in NASTY if isinstance(x, int | float | str | list | dict | None)]
        place[key] = plain[rng.integers(len(plain))]
        text = json.dumps(found)
    file.write_text(text)
    return "accepted" if sound(load_fit(file)) else "wrong"


_saved: list[str] = []
INPUTS = {"file": spoiled_file, "argument": spoiled_argument, "saved fit": spoiled_fit}


def bad_input(seed: int, folder: Path) -> dict:
    """Run the bad input of a seed."""
    rng = np.random.default_rng([seed, 1])
    kind = list(INPUTS)[rng.integers(len(INPUTS))]
    began = time.perf_counter()
    found = outcome(INPUTS[kind], rng, folder)
    return {"seed": seed, "kind": kind, "outcome": found, "seconds": time.perf_counter() - began}


# ---- random fits


def random_problem(seed: int):
    """Draw a cohort, with gaps or without and of any scale, a number of states, a prior and options."""
    rng = np.random.default_rng([seed, 2])
    l, d, N, T = SHAPES[seed % len(SHAPES)]
    A = rng.normal(size=(l, l))
    A *= rng.uniform(0.1, 1.02) / np.abs(np.linalg.eigvals(A)).max()
    noise = [np.diag(10.0 ** rng.uniform(-2, 1, k)) for k in (l, d, l)]
    params = LDSParams(A, rng.normal(size=(d, l)), noise[0], noise[1], rng.normal(size=l), noise[2])
    y = np.array(simulate(jax.random.key(seed), params, [T] * N).cohort.y)
    y *= 10.0 ** rng.choice([0, 0, 0, -6, 6])
    if seed // len(SHAPES) % 2:
        y[rng.random(y.shape) < rng.uniform(0.05, 0.5)] = np.nan
        y[:, 0] = np.nan_to_num(y[:, 0])
    cohort = Cohort.from_array(y).standardize()
    beta = float(10 ** rng.uniform(-1, 2))
    prior = Laplace(beta) if rng.random() < 0.7 else GroupLaplace(beta, "rows")
    Q = "free" if seed // (2 * len(SHAPES)) % 2 else "identity"
    return cohort, l, prior, Q


def sound(fit) -> bool:
    """Tell whether everything in a fit is finite, and its covariances are definite."""
    finite = all(np.isfinite(np.asarray(x)).all() for x in (*fit.params, fit.objective))
    S = fit.params.Q, fit.params.R, fit.params.V1
    return bool(finite and all(np.linalg.eigvalsh(np.asarray(x))[0] >= 0 for x in S))


def optimality(cohort: Cohort, fit) -> float:
    """Return how far a prox step along the likelihood's own gradient moves A, relative to A; JAX differentiates."""
    A, params = np.asarray(fit.params.A), fit.params
    g = np.asarray(jax.grad(lambda A: total_log_likelihood(params._replace(A=A), cohort))(params.A))
    step = 1e-3 / (1 + np.abs(g).max())
    moved = np.asarray(fit.prior.prox(A + step * g, step))
    return float(np.abs(moved - A).max() / step / cohort.n_observed)


def random_fit(seed: int, max_iter: int = 400) -> dict:
    """Fit the problem of a seed."""
    cohort, l, prior, Q = random_problem(seed)
    began, row = time.perf_counter(), {"seed": seed, "gaps": not cohort.complete, "Q": Q}
    row |= {"nan": False, "fall": False, "false convergence": False, "converged": False}

    def case() -> str:
        fit = fit_map(cohort, l, prior, Q=Q, max_iter=max_iter)
        falls = np.diff(fit.objective) < -1e-7 * (1 + np.abs(fit.objective[:-1]))
        row.update({"nan": not sound(fit), "fall": bool(falls.any()), "converged": fit.converged})
        row.update({"stop": fit.stop.name, "n_iter": fit.n_iter, "warned": len(fit.warnings)})
        if fit.stop is Stop.TOLERANCE:
            row["optimality"] = optimality(cohort, fit)
            row["false convergence"] = row["optimality"] > 1e-2
        return "fit"

    row["outcome"] = outcome(case)
    return row | {"seconds": time.perf_counter() - began}


# ---- the table


def kept(file: Path, seeds, run, every: int = 200) -> pd.DataFrame:
    """Run the cases that the file has not, and return all; each is written when it is done."""
    done = [json.loads(x) for x in file.read_text().splitlines()] if file.exists() else []
    have = {row["seed"] for row in done}
    with open(file, "a") as out:
        for n, seed in enumerate(s for s in seeds if s not in have):
            done.append(run(seed))
            out.write(json.dumps(done[-1]) + "\n")
            out.flush()
            if n % every == every - 1:
                print(f"{file.stem}: {len(done)} done", flush=True)
                jax.clear_caches()  # compiled programs use memory maps, of which a process has 65,530
    return pd.DataFrame([row for row in done if row["seed"] in set(seeds)])


def report(inputs: pd.DataFrame, fits: pd.DataFrame) -> str:
    """Return the table of all cases."""
    text = io.StringIO()
    kind = inputs["outcome"].str.partition(":")[0]
    columns = ("accepted", "clear error", "wrong", "traceback", "hang")
    counts = pd.crosstab(inputs["kind"], kind).reindex(columns=columns, fill_value=0)
    print("bad inputs", counts.assign(inputs=counts.sum(axis=1)).to_string(), sep="\n", file=text)
    if len(fits):
        flags = fits[["nan", "fall", "false convergence", "converged"]].fillna(False).astype(bool)
        flags["traceback"] = fits["outcome"].str.startswith("traceback")
        flags["hang"] = fits["outcome"] == "hang"
        print(f"\n{len(fits)} fits", flags.sum().to_string(), sep="\n", file=text)
        print("why they stopped:", dict(Counter(fits["stop"].fillna("error"))), file=text)
    for row in inputs[~kind.isin(columns[:2])].itertuples():
        print(f"input {row.seed}, {row.kind}: {row.outcome}", file=text)
    bad = fits[fits[["nan", "fall", "false convergence"]].any(axis=1)] if len(fits) else fits
    print("seeds of fits to look at:", list(bad["seed"]) if len(bad) else "none", file=text)
    return text.getvalue()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--inputs", type=int, default=1000)
    parser.add_argument("--fits", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=Path("results/fuzz"))
    args = parser.parse_args()
    jax.config.update("jax_enable_x64", True)
    args.out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        seeds = range(args.seed, args.seed + args.inputs)
        inputs = kept(args.out / "inputs.jsonl", seeds, lambda s: bad_input(s, Path(folder)))
    fits = kept(args.out / "fits.jsonl", range(args.seed, args.seed + args.fits), random_fit)
    print(report(inputs, fits))


if __name__ == "__main__":
    main()
