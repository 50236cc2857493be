"""A synthetic panel of six routine tests whose links are known: what `sparse-lds demo` asks which test speaks to which.

No value is from a real patient. Levels, spreads, units and rounding are those of daily hospital bloods; that CRP is
followed by white cells, that inflammation and failing kidneys lower haemoglobin, and that potassium rises with
creatinine, is textbook; the strength of each link is made up.
"""

from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from ..models import Cohort

# name: middle, spread (of the logarithm for those in LOGGED), decimals as laboratories report them
TESTS = {
    "CREA": (90.0, 0.45, 0),  # µmol/L
    "CRP": (30.0, 0.9, 1),  # mg/L
    "HGB": (115.0, 15.0, 0),  # g/L
    "K": (4.2, 0.45, 1),  # mmol/L
    "PLT": (250.0, 70.0, 0),  # 10⁹/L
    "WBC": (9.0, 0.35, 1),  # 10⁹/L
}
LOGGED = ("CRP", "WBC", "CREA")  # skewed and positive: modelled by their logarithms
PERSISTENCE = {"CRP": 0.75, "WBC": 0.5, "PLT": 0.85, "HGB": 0.85, "CREA": 0.85, "K": 0.4}
LINKS = {  # (from, to): of the spreads, from one day to the next
    ("CRP", "WBC"): 0.40,
    ("CRP", "HGB"): -0.15,
    ("WBC", "PLT"): 0.12,
    ("CREA", "HGB"): -0.10,
    ("CREA", "K"): 0.40,
    ("CRP", "CREA"): 0.06,
}


class Panel(NamedTuple):
    """Synthetic lab results, and the links that they were drawn with."""

    frame: pd.DataFrame  # columns id, time (dates), test, value: a long table
    A: np.ndarray  # (6, 6), in the order of `tests`, in units of each test's spread
    tests: tuple[str, ...]


def transition() -> np.ndarray:
    """Return the true A, rows and columns in the order of TESTS."""
    names = list(TESTS)
    A = np.diag([PERSISTENCE[name] for name in names])
    for (source, target), value in LINKS.items():
        A[names.index(target), names.index(source)] = value
    return A


def synthetic_panel(n_patients: int = 200, seed: int = 0) -> Panel:
    """Draw the bloods of a ward: 14 to 21 days a patient, one panel each morning, none missed."""
    rng = np.random.default_rng(seed)
    A, names = transition(), list(TESTS)
    middle, spread, decimals = (np.array(x) for x in zip(*TESTS.values(), strict=True))
    logged = np.array([name in LOGGED for name in names])
    rows = []
    for n in range(n_patients):
        T = int(rng.integers(14, 22))
        z, day = rng.normal(size=6), int(rng.integers(0, 300))
        for t in range(T):
            y = z + 0.3 * rng.normal(size=6)
            value = np.where(logged, middle * np.exp(spread * y), middle + spread * y)
            late = int(rng.integers(0, 120)) if t else 0  # bins of a day begin at the first draw
            time = pd.Timestamp("2024-01-01 06:00") + pd.Timedelta(days=day + t, minutes=late)
            rows += [
                (f"P{n:03d}", time, name, float(f"{v:.{int(k)}f}"))
                for name, v, k in zip(names, value, decimals, strict=True)
            ]
            z = A @ z + 0.45 * rng.normal(size=6)
    frame: Any = pd.DataFrame(rows, columns=["id", "time", "test", "value"])
    return Panel(frame, A, tuple(names))


def truth_for(cohort: Cohort) -> np.ndarray:
    """Return the true A in the units of a cohort of all six tests: A_ij s_j / s_i, s its scales in spreads."""
    scale = np.array(cohort.labels.scale) / [TESTS[str(name)][1] for name in cohort.channels]
    order = [list(TESTS).index(str(name)) for name in cohort.channels]
    return transition()[np.ix_(order, order)] * scale / scale[:, None]
