"""The synthetic cohort of red-cell indices."""

import numpy as np
import pandas as pd

from sparse_lds.experiments.synthetic import synthetic_labs


def test_the_synthetic_cohort_is_what_it_says():
    one, again = synthetic_labs(40), synthetic_labs(40)
    pd.testing.assert_frame_equal(one.frame, again.frame)
    wide = one.frame.pivot_table(index=["id", "time"], columns="test", values="value").dropna()
    ratio = wide["MCHC"] / (100 * wide["MCH"] / wide["MCV"])
    assert abs(ratio.mean() - 1) < 0.002 and ratio.std() < 0.01
    assert wide["MCV"].mod(1).eq(0).all() and wide["MCH"].mul(10).round(6).mod(1).eq(0).all()
    A = one.truth.A
    assert A.shape == (5, 5) and (A == 0).mean() > 0.6 and np.abs(np.linalg.eigvals(A)).max() < 1
