"""A fit that stops being finite returns its last good point and says so; covariances at their floors are told."""

import re

import numpy as np
import pytest

from sparse_lds.inference import Stop, fit_em, fit_map
from sparse_lds.inference.map import loop
from sparse_lds.models import Cohort, Flat, Laplace, LDSParams, NumericalBreakdown

COHORT = Cohort.from_array(np.random.default_rng(0).normal(size=(10, 8, 2)))


def start(scale, dtype=float):
    """Starting values with A = scale · I."""
    eye = np.eye(2, dtype=dtype)
    return LDSParams(dtype(scale) * eye, eye, eye, eye, np.zeros(2, dtype), eye)


def test_a_fit_goes_back_to_its_last_good_point(monkeypatch):
    """A run of EM that breaks at its 4th iteration ends at the 3rd, by NaN and by a fall alike."""
    options = {"init": start(0.5), "max_iter": 12, "tol": 0.0, "accelerate": False}
    wanted = fit_map(COHORT, 2, Laplace(1.0), **{**options, "max_iter": 3})
    real = loop.run
    for wrong in (np.nan, np.inf, -1e6):

        def breaks(state, problem, constraints, n, tol, wrong=wrong):
            state, trace, k = real(state, problem, constraints, n, tol)
            if n > 3:
                trace = trace.at[3:].set(wrong)
                state = state._replace(objective=trace[3])
            return state, trace, k

        monkeypatch.setattr(loop, "run", breaks)
        fit = fit_map(COHORT, 2, Laplace(1.0), **options)
        assert fit.stop is Stop.NOT_FINITE and "last point before it" in str(fit)
        assert not fit.converged and fit.n_iter == 3
        for found, x in zip(fit.params, wanted.params, strict=True):
            np.testing.assert_array_equal(found, x)
        np.testing.assert_array_equal(fit.objective, wanted.objective)


@pytest.mark.parametrize("scale", [1000.0, 1e200])
@pytest.mark.parametrize("prior", [Laplace(1.0), Flat()])
def test_starts_that_explode(scale, prior):
    """Every number in the result is finite, or an error says that the start is at fault."""
    try:
        fit = fit_map(COHORT, 2, prior, init=start(scale), max_iter=30)
    except NumericalBreakdown as error:
        assert scale == 1e200 and re.search("spectral radius of 1e[+]200.*init", str(error))
        return
    leaves = (*fit.params, fit.objective, fit.log_likelihood)
    assert scale == 1000 and all(np.isfinite(np.asarray(x)).all() for x in leaves)


@pytest.mark.parametrize("diagonal", [(), ("R", "V1")])
@pytest.mark.parametrize("kind", ["zero", "tiny", "static", "same start"])
def test_floors_are_told(kind, diagonal):
    y = np.random.default_rng(1).normal(size=(10, 8, 2))
    y = {
        "zero": 0 * y,
        "tiny": 1e-300 * y,
        "static": np.repeat(y[:, :1], 8, axis=1),
        "same start": np.concatenate([np.ones((10, 1, 2)), y[:, 1:]], axis=1),
    }[kind]
    fit = fit_map(Cohort.from_array(y), 2, Laplace(1.0), diagonal=diagonal, max_iter=300)
    said = " ".join(fit.warnings)
    assert ("floor" in said) or not fit.converged
    if kind in ("zero", "tiny"):
        assert "does not change" in said and "floor" in said


def test_sound_data_are_not_warned_of():
    said = fit_map(COHORT, 2, Laplace(1.0), max_iter=20).warnings
    assert not any("floor" in text or "does not change" in text for text in said)


def test_arguments_of_the_wrong_kind():
    """A clear error, or what was meant."""
    y: object = np.asarray(COHORT.y)
    for wrong, match in (
        (lambda: fit_em(y, 2), r"cohort is a ndarray; give a Cohort.*from_array"),
        (lambda: fit_map(COHORT, 2, 3.0), r"prior is 3.0; give .*Laplace"),
        (lambda: fit_em(COHORT, 2, max_iter=np.inf), "max_iter is inf"),
        (lambda: fit_em(COHORT, 2, init=np.eye(2)), "init is a ndarray"),
        (lambda: fit_em(COHORT, 2, tol="small"), "tol is 'small'"),
        (lambda: fit_em(COHORT, 2, seed=2**70), "seed is 11"),
        (lambda: fit_em(COHORT, 2, seed=-1), "seed is -1"),
        (lambda: fit_em(COHORT, 2, diagonal="V2"), "diagonal names 'V2'"),
    ):
        with pytest.raises((TypeError, ValueError), match=match):
            wrong()
    assert fit_em(COHORT, 2, diagonal="V1", max_iter=2).constraints.diagonal == ("V1",)
    single = fit_map(COHORT, 2, Laplace(1.0), init=start(0.5, np.float32), n_restarts=2, max_iter=2)
    assert single.params.A.dtype == np.float32 and len(single.restarts) == 2
