"""Constraints: what they ask for holds from the start of a fit to its end, and what follows from them is right."""

from dataclasses import fields
from functools import partial

import numpy as np
import oracles
import pytest
from oracles import Shape, random_problem

from sparse_lds.inference import Constraints, fit_map, identifiability_report, relaxed_fit
from sparse_lds.inference.covariances import DIAGONAL, FULL, UNIT_DIAGONAL, Split
from sparse_lds.models import Cohort, Flat, Laplace, LDSParams, check_params
from sparse_lds.models.params import shapes_of

SHAPE = Shape(l=2, d=2, N=20, T=8)
CASES = {
    "nothing": Constraints(),
    "C held": Constraints(hold=("C",)),
    "Q and V1 held": Constraints(hold=("Q", "V1")),
    "R diagonal": Constraints(diagonal=("R",)),
    "all diagonal": Constraints(diagonal=("Q", "R", "V1")),
    "unit diagonal": Constraints(Q="unit diagonal"),
    "Q = I": Constraints(Q="identity"),
    "levels": Constraints.levels(),
    "levels, Q diagonal": Constraints.levels(independent=True),
    "own levels": Constraints.levels(own=True),
    "own levels, Q diagonal": Constraints.levels(own=True, independent=True),
    "hidden states and own levels": Constraints(Q="identity", own_levels=True),
    "hidden states of unit noise and own levels": Constraints(Q="unit diagonal", own_levels=True),
}
every_case = pytest.mark.parametrize("constraints", CASES.values(), ids=CASES.keys())


def problem(constraints, seed=0):
    params, cohort = random_problem(seed, SHAPE, gaps=False, ragged=True, radius=0.8)
    return (params._replace(C=np.eye(2)) if constraints.C == "identity" else params), cohort


def violation(constraints, params, start):
    """The largest breach of what the fields of the constraints say, in plain numpy."""
    found = [0.0]
    for name in constraints.hold:
        found.append(
            np.abs(np.asarray(getattr(params, name)) - np.asarray(getattr(start, name))).max()
        )
    for name in constraints.diagonal:
        S = np.asarray(getattr(params, name))
        found.append(np.abs(S - np.diag(np.diagonal(S))).max())
    k = 2 if constraints.own_levels else params.A.shape[0]
    for name in ("C", "Q"):
        if getattr(constraints, name) == "identity":
            X = np.asarray(getattr(params, name))[:k, :k]
            found.append(np.abs(X - np.eye(len(X))).max())
    if constraints.Q == "unit diagonal":
        found.append(np.abs(np.diagonal(params.Q)[:k] - 1).max())
    if constraints.own_levels:  # two states that move, and two that never change
        assert params.A.shape == (4, 4)
        for X in (params.A, params.Q, params.V1):
            found += [np.abs(X[:k, k:]).max(), np.abs(X[k:, :k]).max()]
        found += [np.abs(params.A[k:, k:] - np.eye(2)).max(), np.abs(params.Q[k:, k:]).max()]
        found.append(np.abs(np.asarray(params.C)[:, k:] - np.eye(2)).max())
    return max(found)


def test_every_field_is_looked_at():
    """A new field of `Constraints` is one that `violation` has to learn."""
    known = {
        "hold",
        "diagonal",
        "Q",
        "C",
        "own_levels",
        "absent",
    }  # absent: test_fit_with_inputs.py
    assert {field.name for field in fields(Constraints)} == known


@every_case
def test_a_start_is_made_to_satisfy_the_constraints(constraints):
    """From parameters that do not: random ones, but for what is held and C = I, which is an error."""
    params, cohort = random_problem(3, SHAPE, gaps=False, ragged=True, radius=0.8)
    params = params._replace(C=np.eye(2)) if constraints.C == "identity" else params
    params = constraints.extended(params, cohort)
    start = constraints.start(check_params(params))
    assert violation(constraints, start, params) < 1e-12
    np.testing.assert_allclose(  # the same model, where only the basis had to be changed
        np.linalg.eigvals(start.A), np.linalg.eigvals(params.A), rtol=1e-9
    )


@every_case
def test_a_fit_keeps_its_constraints_and_never_falls(constraints):
    for seed in range(2):
        start, cohort = problem(constraints, seed)
        for accelerate, max_iter in ((False, 1), (False, 30), (True, 21), (True, 25), (True, 120)):
            fit = fit_map(
                cohort,
                2,
                Laplace(2.0),
                init=start,
                constraints=constraints,
                accelerate=accelerate,
                max_iter=max_iter,
            )
            assert violation(constraints, fit.params, start) < 1e-12
            assert (np.diff(fit.objective) >= -1e-9 * np.abs(fit.objective[:-1])).all()
            assert fit.constraints == constraints


@every_case
def test_the_constraints_of_a_fit_ask_for_the_same_again(constraints):
    start, cohort = problem(constraints)
    fit = fit_map(cohort, 2, Laplace(2.0), init=start, constraints=constraints, max_iter=60)
    again = fit_map(
        cohort, 2, Laplace(2.0), init=fit.params, constraints=fit.constraints, max_iter=60
    )
    assert again.objective[-1] >= fit.objective[-1] - 1e-8 * abs(fit.objective[-1])
    assert violation(constraints, again.params, fit.params) < 1e-12
    relaxed = relaxed_fit(cohort, fit, max_iter=20)
    assert relaxed.constraints == constraints
    assert relaxed.log_likelihood >= fit.log_likelihood - 1e-8 * abs(fit.log_likelihood)


def test_keywords_and_object_are_two_ways_to_say_the_same():
    _, cohort = problem(Constraints())
    one = fit_map(cohort, 2, Laplace(2.0), Q="identity", diagonal=("R",), max_iter=10)
    other = fit_map(
        cohort, 2, Laplace(2.0), constraints=Constraints(diagonal=["R"], Q="identity"), max_iter=10
    )
    assert one.constraints == other.constraints
    np.testing.assert_array_equal(one.params.A, other.params.A)
    with pytest.raises(ValueError, match="one or the other"):
        fit_map(cohort, 2, Flat(), hold=("C",), constraints=Constraints())
    with pytest.raises(TypeError, match="constraints is 'levels'"):
        fit_map(cohort, 2, Flat(), constraints="levels")  # type: ignore[arg-type]
    for bad, message in (
        ({"hold": ("X",)}, "hold names 'X'"),
        ({"diagonal": ("A",)}, "diagonal names 'A'"),
        ({"Q": "unit"}, "Q is 'unit'"),
        ({"C": "eye"}, "C is 'eye'"),
        ({"Q": "identity", "hold": ("Q",)}, "cannot be held"),
        ({"Q": "identity", "C": "identity"}, "each fixes the scales"),
    ):
        with pytest.raises(ValueError, match=message):
            Constraints(**bad)


def test_options_override_single_constraints_of_a_fit():
    kept = Constraints(hold=("C",), diagonal=("R",), Q="unit diagonal")
    assert kept.overridden({"max_iter": 3}) == {"constraints": kept, "max_iter": 3}
    changed = kept.overridden({"hold": ("C", "V1"), "Q": "free"})["constraints"]
    assert changed == Constraints(hold=("C", "V1"), diagonal=("R",))
    assert kept.overridden({"constraints": Constraints()})["constraints"] == Constraints()


def test_free_parameters_are_counted():
    """Of Q (3 x 3): 6, 3, and 3 below a unit diagonal; none where it is held."""
    for constraints, n in (
        (Constraints(), 6), (Constraints(diagonal=("Q",)), 3), (Constraints(Q="unit diagonal"), 3),
        (Constraints(Q="identity"), 0), (Constraints(hold=("Q",)), 0),
    ):  # fmt: skip
        sized = LDSParams(*(np.zeros(s) for s in shapes_of(3, 2).values()))
        assert constraints.n_parameters(sized) == 2 * 3 + 3 + 3 + 6 + n  # C, R, pi1, V1, Q


def test_levels_need_a_state_for_each_channel():
    start, cohort = problem(Constraints.levels())
    fit = fit_map(cohort, 2, Laplace(1.0), constraints=Constraints.levels(), max_iter=5)
    np.testing.assert_array_equal(fit.params.C, np.eye(2))
    with pytest.raises(
        ValueError, match="n_states is 3; with a state for each channel .* it must be 2"
    ):
        fit_map(cohort, 3, Laplace(1.0), constraints=Constraints.levels())
    with pytest.raises(ValueError, match="C that is not the identity"):
        fit_map(
            cohort,
            2,
            Laplace(1.0),
            init=start._replace(C=2 * np.eye(2)),
            constraints=Constraints.levels(),
        )


@every_case
def test_what_is_left_open_is_what_basis_changes_say(constraints):
    params, cohort = problem(constraints)
    params = constraints.start(check_params(constraints.extended(params, cohort)))
    params = LDSParams(*(np.asarray(x) for x in params))
    left = identifiability_report(params, constraints).n_directions
    wanted = {"any": 4, "orthogonal": 1}.get(constraints.basis_changes)
    if wanted is not None:
        assert left == wanted
    elif not constraints.free("C"):
        assert left == 0  # rank C = l
    else:
        assert left < 4


def test_diagonals_and_unit_diagonals_pin_part_of_the_basis():
    params = problem(Constraints())[0]
    unit = Constraints(Q="unit diagonal").start(params)
    assert (
        identifiability_report(unit, Constraints(Q="unit diagonal")).n_directions == 2
    )  # 4 less 2 scales
    diagonal = params._replace(Q=np.diag([1.0, 2.0]), V1=np.diag([3.0, 1.0]))
    assert identifiability_report(diagonal, Constraints(diagonal=("Q",))).n_directions == 3
    assert (
        identifiability_report(diagonal, Constraints(diagonal=("Q", "V1"))).n_directions == 2
    )  # scales


# ---- shapes of covariances


def random_covariance(rng, k=3):
    F = rng.normal(size=(k, k + 2))
    return F @ F.T


@pytest.mark.parametrize("shape", [FULL, DIAGONAL, UNIT_DIAGONAL], ids=lambda s: type(s).__name__)
def test_coordinates_begin_at_the_covariance_and_have_its_gradient(shape):
    rng, n, k = np.random.default_rng(0), 50.0, 3
    S = random_covariance(rng)
    S = np.diag(np.diagonal(S)) if shape is DIAGONAL else S
    S = S / np.sqrt(np.outer(np.diagonal(S), np.diagonal(S))) if shape is UNIT_DIAGONAL else S
    floor = 1e-3 * np.eye(k)
    factor = np.linalg.cholesky(S - floor)
    size = shape.size(k)
    np.testing.assert_allclose(shape.at(np.zeros(size), factor, floor, n)[0], S, atol=1e-12)
    G = random_covariance(rng)

    def f(x):
        return np.sum(G * shape.at(x, factor, floor, n)[0])

    for x in (np.zeros(size), rng.normal(size=size)):
        value, known = shape.at(x, factor, floor, n)
        assert np.linalg.eigvalsh(value)[0] > 0
        numeric = [(f(x + h) - f(x - h)) / 2e-6 for h in 1e-6 * np.eye(size)]
        np.testing.assert_allclose(
            shape.pull(G, value, known, factor, n), numeric, rtol=1e-6, atol=1e-8
        )


@pytest.mark.parametrize("shape", [FULL, DIAGONAL, UNIT_DIAGONAL], ids=lambda s: type(s).__name__)
def test_an_m_step_of_a_covariance_gains(shape):
    """log-likelihood -½ (n log |S| + tr S⁻¹ total): a maximum where there is a closed form, else no loss."""
    rng, n, k = np.random.default_rng(1), 30.0, 3

    def gain(S, total):
        return -0.5 * (n * np.linalg.slogdet(S)[1] + np.trace(np.linalg.solve(S, total)))

    for _ in range(5):
        total, now = n * random_covariance(rng), np.eye(k)
        S = np.asarray(shape.m_step(now, total, n, 1e-6 * np.eye(k)))
        assert gain(S, total) >= gain(now, total) - 1e-9
        if shape is UNIT_DIAGONAL:
            np.testing.assert_allclose(np.diagonal(S), 1.0)
            continue
        for _ in range(50):
            E = rng.normal(size=(k, k)) * 1e-2
            E = np.diag(np.diagonal(E)) if shape is DIAGONAL else E + E.T
            assert gain(S + E, total) <= gain(S, total) + 1e-9


@pytest.mark.parametrize("shape", [FULL, DIAGONAL], ids=lambda s: type(s).__name__)
def test_directions_at_the_floor_stay_and_the_others_move(shape):
    """S(x) is S at 0, has its slope, and what is at the floor is there for every x."""
    rng = np.random.default_rng(0)
    U = np.eye(4) if shape is DIAGONAL else np.linalg.qr(rng.normal(size=(4, 4)))[0]
    floor = np.diag([1e-6, 2e-6, 1e-6, 5e-7])
    root = np.sqrt(floor)
    S = root @ (U * [1.0, 3e5, 1.5, 2e6] @ U.T) @ root
    base, factor = shape.above(S, floor, 2.0)
    assert factor.shape == (4, 2)
    n, size = 20.0, shape.size(2)
    np.testing.assert_allclose(
        shape.at(np.zeros(size), factor, base, n)[0], S, rtol=1e-9, atol=1e-14
    )
    low = np.linalg.solve(root, U[:, [0, 2]])  # orthogonal to the others, in units of the floor
    weights, h = rng.normal(size=(4, 4)), 1e-6
    weights = weights + weights.T
    for x in rng.normal(size=(5, size)):
        here, known = shape.at(x, factor, base, n)
        np.testing.assert_allclose(low.T @ here @ low, np.diag([1.0, 1.5]), rtol=1e-6, atol=1e-6)
        slope = shape.pull(weights, here, known, factor, n)
        for i, e in enumerate(np.eye(size)):
            ends = [(weights * shape.at(x + s * h * e, factor, base, n)[0]).sum() for s in (1, -1)]
            np.testing.assert_allclose(
                slope[i], (ends[0] - ends[1]) / (2 * h), rtol=1e-5, atol=1e-7
            )
    assert shape.above(floor, floor, 2.0) is None


@pytest.mark.parametrize(
    ("first", "rest"), [(FULL, FULL), (DIAGONAL, DIAGONAL), (FULL, None), (UNIT_DIAGONAL, None)]
)
@pytest.mark.parametrize("low", [(), (0,), (0, 1), (3,), (0, 2, 3)])
def test_blocks_move_where_they_are_clear_of_their_floors(first, rest, low):
    """It begins at a block-diagonal S, has its slope, and what is at the floor stays, a whole block if need be."""
    rng, n, floor = np.random.default_rng(0), 20.0, 1e-6 * np.eye(4)
    variances = np.where(np.isin(range(4), low), 1e-6, [0.5, 2.0, 1.0, 3.0])
    S = np.diag(np.where(first is UNIT_DIAGONAL, 1.0, variances))
    if rest is None:
        S[2:], floor[2:] = 0.0, 0.0
    shape = Split(2, first, rest)
    found = shape.above(S, floor, 2.0)
    if found is None:
        assert not (np.diagonal(S) > 2 * np.diagonal(floor)).any()
        return
    base, factor = found
    size = shape.n_coordinates(factor)
    np.testing.assert_allclose(shape.at(np.zeros(size), factor, base, n)[0], S, atol=1e-12)
    weights = rng.normal(size=(4, 4))
    weights = weights + weights.T
    x = rng.normal(size=size)
    here, known = shape.at(x, factor, base, n)
    assert not here[:2, 2:].any() and not here[2:, :2].any()
    stays = [i for i in range(4) if S[i, i] <= 2 * floor[i, i]]
    np.testing.assert_allclose(np.diagonal(here)[stays], np.diagonal(S)[stays], rtol=1e-9)
    ends = [
        [(weights * shape.at(x + s * 1e-6 * e, factor, base, n)[0]).sum() for s in (1, -1)]
        for e in np.eye(size)
    ]
    numeric = (np.array(ends) @ [1, -1]) / 2e-6
    np.testing.assert_allclose(
        shape.pull(weights, here, known, factor, n), numeric, rtol=1e-5, atol=1e-7
    )


def test_a_fit_with_directions_at_their_floors_converges():
    """Two channels that are one: R is at its floor in a direction, and free in the other."""
    y = np.random.default_rng(3).normal(size=(20, 8, 3)).cumsum(1)
    y[:, :, 2] = y[:, :, 1]
    fit = fit_map(Cohort.from_array(y).standardize(), 1, Laplace(1.0), Q="identity", max_iter=400)
    assert fit.converged and (np.diff(fit.objective) >= -1e-9 * np.abs(fit.objective[:-1])).all()
    assert any("R (" in text and "floor" in text for text in fit.warnings)


def test_translations_that_an_intercept_leaves_open_are_counted():
    """Those are open that leave the dense likelihood, and what is held, as they are."""
    params, cohort = oracles.random_problem(0, (2, 3, 4, 5), p=1, radius=0.8)
    cohort = type(cohort).from_sequences(cohort.sequences(), inputs=list(cohort.u))
    cohort = cohort.with_intercept("both")
    B, D = (np.hstack([x, np.full((len(x), 1), 0.3)]) for x in (params.B, params.D))
    params, c = params._replace(B=B, D=D), np.array([0.7, -1.2])
    A = np.asarray(params.A)
    there = params._replace(
        B=B + np.outer(c - A @ c, [0, 1]),
        D=D - np.outer(params.C @ c, [0, 1]),
        pi1=params.pi1 + A @ c,
    )
    here, moved = (oracles.log_likelihood(p, cohort) for p in (params, there))
    np.testing.assert_allclose(moved, here, rtol=1e-10)
    assert cohort.intercept == 1
    report = partial(identifiability_report, params, intercept=cohort.intercept)
    assert report().n_translations == 2 and "2 constants" in str(report())
    for held in ("B", "D", "pi1"):  # I - A, C and A have full rank
        assert report([held]).n_translations == 0
    assert report(Constraints(absent=[("D", 1)])).n_translations == 0
    assert report(Constraints(absent=[("D", 0)])).n_translations == 2
    assert identifiability_report(params).n_translations == 0
    singular = params._replace(A=np.diag([0.5, 0.0]))
    assert identifiability_report(singular, ["pi1"], 1).n_translations == 1
    rank_one = params._replace(C=np.outer(np.ones(3), [1.0, 0.0]))
    assert identifiability_report(rank_one, ["D"], 1).n_translations == 1
