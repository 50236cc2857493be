"""A fit that stops being finite returns its last good point and says so; covariances at their floors are told."""

import re

import jax
import numpy as np
import pytest

from sparse_lds.inference import Stop, fit_em, fit_map
from sparse_lds.inference.map import loop
from sparse_lds.inference.map.checks import drift
from sparse_lds.models import (
    Cohort,
    Flat,
    GroupLaplace,
    Laplace,
    LDSParams,
    NumericalBreakdown,
    simulate,
)

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


def test_a_matrix_that_is_singular_but_for_rounding_leaves_the_fit_to_em(monkeypatch):
    def singular(*_):
        raise np.linalg.LinAlgError("Singular matrix")

    monkeypatch.setattr(loop, "chart_at", singular)
    fit = fit_map(COHORT, 2, Laplace(1.0), init=start(0.5), max_iter=60)
    assert fit.n_iter > 20 and fit.steps["quasi-newton"] == 0 and np.isfinite(fit.objective).all()


def test_states_that_become_combinations_of_others_are_a_drift():
    params = start(0.5)
    Q = np.array([[1.0, 1 - 1e-10], [1 - 1e-10, 1.0]])
    assert drift(params) < 2 and drift(params._replace(Q=np.diag([1e10, 1.0]))) > 9e4
    assert drift(params._replace(Q=Q)) > 1e4
    assert drift(params._replace(Q=np.diag([1.0, 0.0]))) < 2  # a state without noise has no scale


def test_em_that_looks_settled_is_not_taken_for_an_optimum():
    """A state that hardly moves: EM alone meets the tolerance 5 nats below the optimum."""
    rng = np.random.default_rng([120, 2])
    A = rng.normal(size=(1, 1))
    A *= rng.uniform(0.1, 1.02) / np.abs(A).max()
    noise = [np.diag(10.0 ** rng.uniform(-2, 1, k)) for k in (1, 2, 1)]
    true = LDSParams(A, rng.normal(size=(2, 1)), noise[0], noise[1], rng.normal(size=1), noise[2])
    cohort = simulate(jax.random.key(120), true, [6] * 8).cohort.standardize()
    prior = GroupLaplace(1.961, "rows")
    plain, fit = (
        fit_map(cohort, 1, prior, accelerate=fast, max_iter=400) for fast in (False, True)
    )
    best = max(
        fit_map(cohort, 1, prior, n_restarts=3, seed=seed, tol=1e-7).objective[-1]
        for seed in range(3)
    )
    assert plain.converged and plain.objective[-1] < best - 3  # if not, this is no test any more
    assert fit.converged and fit.objective[-1] > best - 1e-3


@pytest.mark.parametrize("variant", ["exact", "paper"])
def test_floors_name_their_channels(variant):
    y = np.random.default_rng(1).normal(size=(10, 8, 3)) * [1.0, 0.0, 1.0]
    named = Cohort.from_array(y, channels=("Na", "K", "Cl"))
    options = {"variant": variant, "diagonal": ("R", "V1"), "max_iter": 40}
    said = " ".join(fit_map(named, 1, Laplace(1.0), **options).warnings)
    assert (
        re.search(r"R \(K\) .*at (its|their) floor.*weak", said) and "channel 'K' does not" in said
    )


def test_algorithm_1_says_that_a_start_is_at_fault():
    with pytest.raises(NumericalBreakdown, match="spectral radius of 1e[+]200.*init"):
        fit_map(COHORT, 2, Laplace(1.0), init=start(1e200), variant="paper")


@pytest.mark.parametrize(("l", "d", "N", "T"), [(60, 6, 100, 40), (5, 200, 30, 12)])
def test_many_states_and_many_channels_fit(l, d, N, T):
    """More states than the data can tell of, and many channels; `python benchmarks large` goes on to the end."""
    rng = np.random.default_rng(0)
    A, eye = rng.normal(size=(4, 4)), np.eye(4)
    A *= 0.9 / np.abs(np.linalg.eigvals(A)).max()
    true = LDSParams(A, rng.normal(size=(d, 4)), eye, np.eye(d), np.zeros(4), eye)
    cohort = simulate(jax.random.key(0), true, [T] * N).cohort
    few = d < 10  # a change of basis of 60 states takes half a minute
    options = {"Q": "identity", "accelerate": not few, "max_iter": 35}
    fit = fit_map(cohort, l, Laplace(30.0), **options)
    leaves = (*fit.params, fit.objective)
    assert all(np.isfinite(np.asarray(x)).all() for x in leaves)
    assert fit.n_iter == 35 and (fit.steps["quasi-newton"] > 0) != few
    assert (np.diff(fit.objective) >= -1e-9 * np.abs(fit.objective[:-1])).all()


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
    assert "floor" in said
    if kind in ("zero", "tiny"):
        assert "does not change" in said and "floor" in said


@pytest.mark.parametrize("scale", [1e-110, 1e110])
def test_warnings_do_not_depend_on_units(scale):
    """Squares of variances would underflow or overflow."""
    y = np.random.default_rng(2).normal(size=(12, 8, 2))
    y[:, :, 1] = y[:, :, 0]
    options = {"accelerate": False, "max_iter": 200}
    said = [
        fit_map(Cohort.from_array(s * y), 1, Laplace(1.0), **options).warnings for s in (1.0, scale)
    ]
    assert said[0] == said[1] and any("nearly singular" in text for text in said[0])


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
