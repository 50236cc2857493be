"""Shapes that the fields of NamedTuples declare are checked while the tests run."""

import numpy as np
import pytest
from shapes import CHECKED

from sparse_lds.inference.proximal import quadratic
from sparse_lds.models import LDSParams
from sparse_lds.models.basis import moved


def test_the_central_types_are_checked():
    central = {"LDSParams", "ExpectedStatistics", "Complete", "Gappy", "FitResult", "Quadratic"}
    assert central <= set(CHECKED) and len(CHECKED) >= 15


def test_a_wrong_shape_inside_the_package_is_found():
    I = np.eye(2)
    wrong = LDSParams(
        I, I, I, np.eye(3), np.zeros(2), I
    )  # a test may: it wants to see what happens
    with pytest.raises(AssertionError, match=r"LDSParams.R is \(3, 3\), not \(\*n d d\)"):
        moved(wrong, I)
    with pytest.raises(AssertionError, match=r"Quadratic.S10 is \(3, 2\)"):
        quadratic(I, I, np.zeros((3, 2)))
