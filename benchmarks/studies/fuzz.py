"""Give the package bad files, arguments, saved fits and commands: clear errors, no wrong result, traceback or hang.

python benchmarks fuzz [--inputs 1000] [--seed 0] [--out benchmarks/results/robustness]

Case k has seed + k, and is the same in every run; cases that the file inputs.jsonl of --out has are not run again.
"""

import argparse
import json
import tempfile
import time
from pathlib import Path

import jax
import numpy as np
import pandas as pd
from cases import CLEAR, kept, outcome, sound
from typer.testing import CliRunner

from sparse_lds.experiments.app.cli import app
from sparse_lds.experiments.labs import bin_labs, read_labs
from sparse_lds.experiments.saving import load_fit, save_fit
from sparse_lds.inference import fit_map
from sparse_lds.models import Cohort, Laplace

JUNK = [
    "", " ", "NA", "nan", "inf", "-inf", "1e400", "1e15", "-1", "0x1F", "1,5", "1.234,5", "1 234", "< 3", "true",
    "today", "2023-01-05", "23-01-05", "05/01/2023", "31/13/2023", "2023-01-05 10:00+02:00", "20230105",
    "1672876800000", "9999-12-31", "=1+1", "$K$", "\x00", "é", "💉", '"', "'", ";", "\n", "x" * 5000, "None", "[]",
]  # fmt: skip
NASTY = [
    None, float("nan"), float("inf"), -1, 0, 1e300, 2**70, "x", "", [], {}, (), True, 1.5, np.zeros(0), 
    np.full((2, 2), np.nan),    np.array(["a"]), object(), b"x", [None], -1e-300, "1e5", range(3), {"A": 1}, float,
]  # fmt: skip
COLUMNS = ("accepted", "clear error", "wrong", "traceback", "hang")
# options of reading and of forecasts; those of a fit are read in the same way, and cost a fit where they are good
OPTIONS = [
    "--kind", "--id", "--time", "--time-unit", "--decimal", "--thousands", "--test", "--value", "--tests", "--log",
    "--step", "--panels", "--gaps", "--beta", "--states", "--pull", "--own-levels", "--noise", "--priors", "--rule",
    "--seed", "--max-iter", "--starts",
]  # fmt: skip


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


def spoiled_command(rng, folder: Path) -> str:
    """Give a command a few bad options: one line, or a result. The patients are too few, so that no fit is run."""
    file = folder / "few.csv"
    file.write_text("\n".join(table(rng).splitlines()[:7]))
    words = [
        *JUNK,
        "0",
        "-3",
        "1e9",
        "auto",
        "yes",
        "K",
        "8h",
        "4294967296",
        "CREA,K",
        ".",
        "none",
        "--force",
    ]
    args = ["fit", str(file), "--out", str(folder / "out"), "--panels", "3"]
    for _ in range(rng.integers(1, 4)):
        args += [OPTIONS[rng.integers(len(OPTIONS))], words[rng.integers(len(words))]]
    result = CliRunner().invoke(app, args)
    if result.exit_code == 0:
        return "accepted"
    said = result.output.strip()
    if result.exit_code != 2 or "Traceback" in said or "defect" in said or len(said) < 15:
        raise RuntimeError(
            f"{args[3:]}: exit {result.exit_code}, {said[-150:]}, {result.exception!r}"
        )
    return "clear error"


_saved: list[str] = []
INPUTS = {
    "file": spoiled_file,
    "argument": spoiled_argument,
    "saved fit": spoiled_fit,
    "command": spoiled_command,
}


def bad_input(seed: int, folder: Path) -> dict:
    """Run the bad input of a seed."""
    rng = np.random.default_rng([seed, 1])
    kind = list(INPUTS)[rng.integers(len(INPUTS))]
    began = time.perf_counter()
    found = outcome(INPUTS[kind], rng, folder)
    return {"seed": seed, "kind": kind, "outcome": found, "seconds": time.perf_counter() - began}


def report(inputs: pd.DataFrame) -> pd.DataFrame:
    """Return how the inputs of each kind ended."""
    ended = inputs["outcome"].str.partition(":")[0]
    counts = pd.crosstab(inputs["kind"], ended).reindex(columns=COLUMNS, fill_value=0)
    return pd.concat([counts, counts.sum().to_frame("all").T]).assign(
        inputs=lambda t: t.sum(axis=1)
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--inputs", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results/robustness"))
    parser.add_argument(
        "--report", action="store_true", help="the table of what is there; run nothing"
    )
    args = parser.parse_args()
    jax.config.update("jax_enable_x64", True)
    seeds = range(args.seed, args.seed + args.inputs)
    with tempfile.TemporaryDirectory() as folder:
        found = kept(
            args.out / "inputs.jsonl", seeds, lambda s: bad_input(s, Path(folder)), args.report
        )
    table = report(found)
    table.to_csv(args.out / "inputs.csv", index_label="kind")
    print(table.to_string())
    for row in found[~found["outcome"].isin(COLUMNS[:2])].itertuples():
        print(f"input {row.seed}, {row.kind}: {row.outcome}")


if __name__ == "__main__":
    main()
