"""A synthetic cohort of red-cell indices: MCHC, MCH and MCV of 600 patients, from a sparse LDS that is known.

No value is from a real patient. The levels, spreads, rounding and the relation MCHC = 100 · MCH / MCV are those of real
complete blood counts; the dynamics are made up: five states on an 8-hour clock, each driving few others.
"""

from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from ..models import LDSParams

HOURS = 8.0
LEVEL = {"MCH": 30.0, "MCV": 90.0}  # pg, fL
SPREAD = {"MCH": 2.0, "MCV": 5.5}
DECIMALS = {"MCHC": 1, "MCH": 1, "MCV": 0}  # as laboratories report them


class Synthetic(NamedTuple):
    """Synthetic lab results, and the parameters that they were drawn from."""

    frame: pd.DataFrame  # columns id, time (hours), test, value: a long table
    truth: LDSParams  # of MCH and MCV in units of their spread around their level, one step 8 hours


def truth() -> LDSParams:
    """Return the true parameters.

    Two slow states (iron and volume), a fast one that follows the first, and a damped rotation (fluid shifts).
    """
    A = np.zeros((5, 5))
    A[0, 0], A[1, 1], A[2, 2] = 0.98, 0.96, 0.6
    A[2, 0] = 0.3
    A[3:, 3:] = 0.85 * np.array([[np.cos(0.6), -np.sin(0.6)], [np.sin(0.6), np.cos(0.6)]])
    C = np.array([[0.9, 0.25, 0.4, 0.3, 0.0], [0.55, 0.75, 0.0, 0.45, 0.0]])
    Q = np.diag([0.03, 0.04, 0.12, 0.08, 0.08])
    V1 = np.diag([0.8, 0.6, 0.25, 0.25, 0.25])
    return LDSParams(A, C, Q, np.diag([0.01, 0.01]), np.zeros(5), V1)


def synthetic_labs(n_patients: int = 600, seed: int = 0) -> Synthetic:
    """Draw irregular panels: 22 to 45 bins of 8 hours a patient, about 70% of them with a draw at a random minute.

    A draw loses single tests now and then (2% of values); MCHC is calculated from the unrounded MCH and MCV, as an
    analyser does, with a little error of its own; then all three are rounded.
    """
    rng = np.random.default_rng(seed)
    p = truth()
    LQ, LR, LV = (np.linalg.cholesky(S) for S in (p.Q, p.R, p.V1))
    rows = []
    for n in range(n_patients):
        T = int(rng.integers(22, 46))
        z = p.pi1 + LV @ rng.normal(size=5)
        y = np.empty((T, 2))
        for t in range(T):
            y[t] = p.C @ z + LR @ rng.normal(size=2)
            z = p.A @ z + LQ @ rng.normal(size=5)
        mch, mcv = (LEVEL[k] + SPREAD[k] * y[:, j] for j, k in enumerate(("MCH", "MCV")))
        mchc = 100 * mch / mcv + 0.15 * rng.normal(size=T)
        drawn = rng.random(T) < 0.7
        drawn[[0, -1]] = True
        minute = np.round(rng.uniform(0, 60 * HOURS - 1, T)) / 60
        hours = HOURS * np.arange(T) + minute
        for test, value in (("MCHC", mchc), ("MCH", mch), ("MCV", mcv)):
            kept = drawn & ((rng.random(T) > 0.02) | ~drawn)
            part = pd.DataFrame(
                {"time": hours[kept], "value": np.round(value[kept], DECIMALS[test])}
            )
            rows.append(part.assign(id=f"S{n:03d}", test=test))
    frame: Any = pd.concat(rows, ignore_index=True)[["id", "time", "test", "value"]]
    frame = frame.sort_values(["id", "time"], kind="stable", ignore_index=True)
    return Synthetic(frame, p)
