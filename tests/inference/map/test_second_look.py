"""Where a fit has settled: saddle points are left, what is rightly off stays, and nothing is lost or broken."""

import jax
import numpy as np
import pytest

from sparse_lds.inference import Constraints, fit_map
from sparse_lds.inference.map import loop, second_look
from sparse_lds.inference.map.program import evaluate, pose
from sparse_lds.models import Cohort, Flat, Laplace, LDSParams, simulate

TRUE = LDSParams(
    A=np.array([[0.9]]),
    C=np.array([[1.0], [-0.5], [0.3]]),
    Q=np.eye(1),
    R=np.diag([0.5, 0.3, 1.0]),
    pi1=np.zeros(1),
    V1=np.eye(1),
)
COHORT = simulate(jax.random.key(0), TRUE, [12] * 20).cohort
NOISE = Cohort.from_array(np.random.default_rng(0).normal(size=(20, 12, 3)))
KEPT = {
    "free": Constraints(),
    "Q = I": Constraints(Q="identity"),
    "unit diagonal": Constraints(Q="unit diagonal"),
    "R, V1 diagonal": Constraints(diagonal=("R", "V1")),
    "pi1, V1 held": Constraints(hold=("pi1", "V1")),
    "own levels": Constraints(own_levels=True),
}


def faded(l, A=0.3):
    """A start at a saddle point: no state shows in any channel."""
    eye = np.eye(l)
    return LDSParams(A * eye, np.zeros((3, l)), eye, np.eye(3), np.zeros(l), eye)


@pytest.mark.parametrize("name", KEPT)
def test_a_fit_leaves_a_saddle_point(name, monkeypatch):
    """C = 0 is a stationary point; the objective rises to that of a good start, and constraints are kept."""
    options = {"constraints": KEPT[name], "max_iter": 400}
    fit = fit_map(COHORT, 1, Laplace(1.0), init=faded(1), **options)
    assert (np.diff(fit.objective) >= -1e-9 * np.abs(fit.objective[:-1])).all()
    good = TRUE._replace(pi1=faded(1).pi1, V1=faded(1).V1)
    best = fit_map(COHORT, 1, Laplace(1.0), init=good, **options)
    assert abs(fit.objective[-1] - best.objective[-1]) < 1e-2
    for held in KEPT[name].hold:
        np.testing.assert_array_equal(getattr(fit.params, held), getattr(faded(1), held))
    for diagonal in KEPT[name].diagonal:
        S = np.asarray(getattr(fit.params, diagonal))
        np.testing.assert_array_equal(S, np.diag(np.diagonal(S)))
    if KEPT[name].Q != "free":
        np.testing.assert_allclose(np.diagonal(fit.params.Q), 1.0, rtol=1e-12)
    again = fit_map(COHORT, 1, Laplace(1.0), init=faded(1), **options)
    np.testing.assert_array_equal(again.objective, fit.objective)

    monkeypatch.setattr(loop, "second_look", lambda *_: None)
    left = fit_map(COHORT, 1, Laplace(1.0), init=faded(1), **options)
    assert left.converged and left.objective[-1] < best.objective[-1] - 10  # if not, no test


def test_a_fit_with_inputs_leaves_it_too():
    u = np.random.default_rng(1).normal(size=(20, 12, 1))
    cohort = Cohort.from_array(COHORT.y, inputs=u)
    nothing = {"B": np.zeros((1, 1)), "D": np.zeros((3, 1))}
    fits = [
        fit_map(cohort, 1, Laplace(1.0), init=start._replace(**nothing), max_iter=400)
        for start in (faded(1), TRUE)
    ]
    assert abs(fits[0].objective[-1] - fits[1].objective[-1]) < 1e-2
    assert (np.diff(fits[0].objective) >= -1e-9 * np.abs(fits[0].objective[:-1])).all()


@pytest.mark.parametrize("l", [1, 2])
def test_a_state_that_is_rightly_off_stays(l, monkeypatch):
    """A state without memory is no more than noise: the fit ends where it would without a look, bit for bit.

    The first step is held, since a state could be of use there.
    """
    looked, options = [], {"hold": ("pi1", "V1"), "Q": "identity"}

    def look(*args):
        looked.append(second_look.second_look(*args))
        return looked[-1]

    fits = []
    for what in (look, lambda *_: None):
        monkeypatch.setattr(loop, "second_look", what)
        fits.append(fit_map(NOISE, l, Laplace(50.0), init=faded(l, 0.0), **options))
    assert looked == [None] and fits[0].converged
    for a, b in zip(
        (*fits[0].params, fits[0].objective), (*fits[1].params, fits[1].objective), strict=True
    ):
        np.testing.assert_array_equal(a, b)


def test_a_fit_whose_states_show_is_not_looked_at():
    """Then a second look costs no E-step."""
    problem = pose(COHORT, Laplace(1.0), LDSParams(*map(np.asarray, TRUE)), Constraints())
    point = evaluate(TRUE, problem, Constraints())
    asked = problem, Constraints(), Laplace(1.0)
    assert not list(second_look._wakened(point, *asked))
    assert not list(second_look._calmer(point.params, *asked[1:]))
    off = evaluate(faded(1), problem, Constraints())
    held = Constraints(hold=("C", "Q"))
    assert len(list(second_look._wakened(off, *asked))) == len(second_look._DECAYS)
    assert not list(second_look._wakened(off, problem, held, Flat()))


@pytest.mark.parametrize("d", [1, 2, 5, 30])
def test_the_leading_direction_is_that_of_the_matrix(d):
    F = np.random.default_rng(d).normal(size=(d, d))
    H = F + F.T
    u = second_look._leading(lambda v: H @ v, d)
    np.testing.assert_allclose(np.linalg.norm(u), 1.0)
    largest = np.linalg.eigvalsh(H)[-1]
    assert u @ H @ u > (0.8 if d > 8 else 1 - 1e-9) * largest - 1e-9 * (largest < 0)


def test_a_matrix_that_is_singular_but_for_rounding_is_no_error(monkeypatch):
    def singular(*_):
        raise np.linalg.LinAlgError("Matrix is not positive definite")

    monkeypatch.setattr(loop, "second_look", singular)
    fit = fit_map(COHORT, 1, Laplace(1.0), init=faded(1), max_iter=60)
    assert fit.converged and np.isfinite(fit.objective).all()
