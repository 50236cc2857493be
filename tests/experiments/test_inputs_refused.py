"""Whatever knows nothing of inputs yet refuses a cohort, or a model, that has them, and does not ignore them."""

import numpy as np
import pytest
from oracles import random_problem

from sparse_lds.inference import fit_em
from sparse_lds.models import kalman_smoother, lds_model, log_likelihood

PARAMS, COHORT = random_problem(0, (2, 2, 4, 5), p=1, radius=0.8)


def test_a_model_without_inputs_refuses_a_cohort_that_has_them():
    plain = type(PARAMS._replace(B=None, D=None))(*PARAMS[:6])
    for f in (log_likelihood, kalman_smoother):
        with pytest.raises(ValueError, match=r"the cohort has inputs \(u0\)"):
            f(plain, COHORT)
    with pytest.raises(ValueError, match="Algorithm 1 knows no inputs"):
        fit_em(COHORT, 2, variant="paper", max_iter=1)
    held = plain._asdict() | {"B": np.zeros((2, 1)), "D": np.zeros((2, 1))}
    lds_model(COHORT, 2, held=held)  # with B and D there is nothing to refuse
