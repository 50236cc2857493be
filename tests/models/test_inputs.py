"""Inputs of cohorts and parameters: what goes in comes out again, and what cannot go in is named."""

import pickle
from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from oracles import random_params, random_problem

from sparse_lds.models import (
    Cohort,
    LDSParams,
    canonical_scaling,
    change_basis,
    check_params,
    leading_states,
    load_params,
    log_likelihood,
    predict,
    save_params,
    simulate,
    with_own_levels,
)
from sparse_lds.models.basis import derivative, whitened
from sparse_lds.models.kalman.step import Gaussian

nan = np.nan


def small(**options) -> Cohort:
    """Two sequences with two channels and two inputs, one of which goes on for two steps after the first's end."""
    ys = [[[1.0, nan], [2.0, 3.0], [4.0, 5.0]], [[8.0, 9.0]]]
    us = [[[0.0, 1], [1, 1], [0, 1], [5, 1], [6, 1]], [[2, 3]]]
    return Cohort.from_sequences(
        ys, ids=["a", "b"], inputs=us, input_names=["dose", "age"], **options
    )


def assert_same(a: Cohort, b: Cohort):
    assert a.inputs == b.inputs and a.ids == b.ids and a.channels == b.channels
    for x, y in zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True):
        assert_allclose(x, y)


def test_layout():
    cohort = small()
    assert (cohort.inputs, cohort.n_inputs) == (("dose", "age"), 2)
    assert_array_equal(cohort.u[..., 0], [[0, 1, 0], [2, 0, 0]])
    assert_array_equal(cohort.ahead[..., 0], [[5, 6], [nan, nan]])
    assert "2 channels, 2 inputs" in repr(cohort)
    assert_array_equal(cohort.inputs_ahead(1)[..., 0], [[0, 1, 0, 5], [2, nan, nan, nan]])
    with pytest.raises(ValueError, match="read-only"):
        cohort.u[0, 0, 0] = 3
    assert small().take([1]).u.shape == (1, 1, 2)
    assert Cohort.from_sequences([[[1.0]]]).n_inputs == 0


def test_constructors_agree():
    cohort = small()
    y = np.where(cohort.mask, cohort.y, nan)
    u = cohort.inputs_ahead(2)
    array = Cohort.from_array(
        y,
        lengths=cohort.lengths,
        ids=["a", "b"],
        inputs=u,
        input_names=["dose", "age"],
    )
    assert_same(array, cohort)
    frame = cohort.to_dataframe()
    assert list(frame) == ["id", "time", "y0", "y1", "dose", "age"] and len(frame) == 6
    wide = Cohort.from_wide(frame, inputs=["dose", "age"])
    assert_same(wide, cohort)
    long = frame.melt(["id", "time"], var_name="channel").dropna()
    assert_same(Cohort.from_long(long, inputs=["dose", "age"]), cohort)
    picked = Cohort.from_wide(frame, channels=["y1"], inputs=["age"])
    assert (picked.channels, picked.inputs) == (("y1",), ("age",))


def test_inputs_stay_as_they_are_where_values_change():
    cohort = small()
    for other in (cohort.standardize(), cohort.standardize_like(cohort), cohort.log()):
        assert_array_equal(other.u, cohort.u)
        assert other.inputs == cohort.inputs
    both = cohort.take([1, 0])
    assert_array_equal(both.u, cohort.u[[1, 0]])
    assert_array_equal(both.ahead, cohort.ahead[[1, 0]])
    again = pickle.loads(pickle.dumps(cohort))
    assert_same(again, cohort)
    assert again.labels == cohort.labels and hash(again.labels) == hash(cohort.labels)


def test_gaps_in_inputs_are_filled_only_on_demand():
    us = [[[nan], [1.0], [nan]], [[2.0], [nan], [nan]]]
    ys = np.ones((2, 3, 1))
    with pytest.raises(ValueError, match="sequence 0, step 0, input 'u0' is missing"):
        Cohort.from_sequences(ys, inputs=us)
    assert_array_equal(
        Cohort.from_sequences(ys, inputs=us, fill_inputs="zero").u[..., 0], [[0, 1, 0], [2, 0, 0]]
    )
    with pytest.raises(ValueError, match="sequence 0, step 0"):  # nothing to carry forward
        Cohort.from_sequences(ys, inputs=us, fill_inputs="forward")
    found = Cohort.from_sequences(ys[1:], inputs=us[1:], fill_inputs="forward")
    assert_array_equal(found.u[..., 0], [[2, 2, 2]])


def test_an_intercept_is_an_input():
    cohort = small().with_intercept()
    assert cohort.inputs == ("dose", "age", "intercept") and cohort.labels.intercept == "emission"
    assert_array_equal(cohort.u[..., 2], [[1, 1, 1], [1, 0, 0]])
    assert_array_equal(cohort.inputs_ahead(3)[..., 2], [[1] * 6] * 2)
    assert cohort.with_intercept("state").labels.intercept == "state"
    alone = Cohort.from_sequences([[[1.0], [2.0]]]).with_intercept()
    assert_array_equal(alone.u, np.ones((1, 2, 1)))
    assert "intercept" not in small().with_intercept().to_dataframe()
    with pytest.raises(ValueError, match="acts_on is 'A'"):
        small().with_intercept("A")


@pytest.mark.parametrize(
    ("inputs", "options", "message"),
    [
        ([[[1.0]]], {}, "inputs has 1 sequences, and y has 2"),
        ([[1.0, 2.0], [1.0]], {}, r"are \(2,\), not \(steps, inputs\); for one input"),
        ([np.ones((2, 1)), np.ones((1, 2))], {}, "sequence 1 has 2 inputs, the first has 1"),
        ([np.ones((1, 1)), np.ones((1, 1))], {}, "sequence 0 has inputs at 1 steps, and 2 steps"),
        ([np.full((2, 1), np.inf), np.ones((1, 1))], {}, "step 0, input 'u0' is inf"),
        ([[["x"], [1]], [[1]]], {}, "sequence 0, step 0, input 'u0' is 'x'"),
        ([np.ones((2, 1)), np.ones((1, 1))], {"input_names": ["a", "b"]}, "has 2 names"),
        ([np.ones((2, 1)), np.ones((1, 1))], {"input_names": ["y0"]}, "an input and of a channel"),
        ([np.ones((2, 1)), np.ones((1, 1))], {"input_names": ["intercept"]}, "with_intercept"),
        ([np.ones((2, 2)), np.ones((1, 2))], {"input_names": ["a", "a"]}, "'a' 2 times"),
        ([np.ones((2, 1)), np.ones((1, 1))], {"fill_inputs": "x"}, "fill_inputs is 'x'"),
    ],
)
def test_bad_inputs_are_named(inputs, options, message):
    with pytest.raises((ValueError, TypeError), match=message):
        Cohort.from_sequences([np.ones((2, 1)), np.ones((1, 1))], inputs=inputs, **options)


def test_bad_columns_are_named():
    frame = pd.DataFrame({"id": [0, 0], "time": [0, 1], "y": [1.0, 2.0], "dose": [1.0, nan]})
    with pytest.raises(ValueError, match="step 1, input 'dose' is missing"):
        Cohort.from_wide(frame, inputs=["dose"])
    with pytest.raises(ValueError, match="no column 'x'"):
        Cohort.from_wide(frame, inputs=["x"])
    with pytest.raises(TypeError, match="give a list"):
        Cohort.from_wide(frame, inputs="dose")
    filled = Cohort.from_wide(frame, inputs=["dose"], fill_inputs="forward")
    assert_array_equal(filled.u[0, :, 0], [1, 1])


# ---- parameters


def test_parameters_without_inputs_are_six():
    params = random_params(np.random.default_rng(0), 2, 3)
    A, C, Q, R, pi1, V1 = params
    assert LDSParams._fields == params._fields == ("A", "C", "Q", "R", "pi1", "V1")
    assert params.B is None and params.D is None and params.n_inputs == 0
    assert len(jax.tree.leaves(params)) == len(params) == 6
    assert type(LDSParams(*params, B=None, D=None)) is LDSParams


def test_parameters_with_inputs_are_eight():
    params = random_params(np.random.default_rng(0), 2, 3, p=4)
    assert isinstance(params, LDSParams) and isinstance(params, tuple)
    assert params._fields[6:] == ("B", "D") and params.n_inputs == 4
    for other in (
        jax.tree.map(lambda x: x, params),
        LDSParams(*params),
        LDSParams(**params._asdict()),
        pickle.loads(pickle.dumps(params)),
        params._replace(A=params.A),
        type(params)._make(params),
    ):
        assert type(other) is type(params)
        for x, y in zip(other, params, strict=True):
            assert_array_equal(x, y)
    assert "D=array" in repr(params) and repr(params).startswith("LDSParams(A=")
    assert type(params._replace(B=None, D=None)) is LDSParams
    assert jax.jit(lambda p: p.B @ p.D.T)(params).shape == (2, 3)
    stacked = jax.tree.map(lambda x: jnp.stack([x, x]), params)
    assert jax.vmap(lambda p: p.D.sum())(stacked).shape == (2,)


def test_check_params_checks_inputs():
    params = random_params(np.random.default_rng(0), 2, 3, p=4)
    assert check_params(params, 3, 2, 4).B.shape == (2, 4)
    one = check_params(params._replace(B=None))
    assert_array_equal(one.B, np.zeros((2, 4)))
    for bad, message in (
        (params._replace(B=np.ones((3, 4))), r"params.B has shape \(3, 4\).*must be \(2, 4\)"),
        (params._replace(D=np.ones((3, 2))), r"params.D has shape \(3, 2\).*must be \(3, 4\)"),
        (params._replace(D=np.full((3, 4), nan)), "params.D is nan"),
        (params._replace(B=np.ones(2)), "a column for each input"),
    ):
        with pytest.raises(ValueError, match=message):
            check_params(bad)
    with pytest.raises(ValueError, match="there are no inputs"):
        check_params(params, n_inputs=0)


@pytest.mark.parametrize("suffix", [".npz", ".json"])
def test_files_keep_inputs(tmp_path, suffix):
    for p in (0, 2):
        params = random_params(np.random.default_rng(0), 2, 3, p=p)
        save_params(tmp_path / f"params{suffix}", params)
        found = load_params(tmp_path / f"params{suffix}")
        assert found._fields == params._fields
        for x, y in zip(found, params, strict=True):
            assert_array_equal(x, y)


def test_changes_of_basis_move_B_alone_of_the_two():
    params, cohort = random_problem(0, (3, 2, 2, 4), p=2)
    rng = np.random.default_rng(0)
    F = np.linalg.cholesky(np.cov(rng.normal(size=(3, 20))))
    wanted = log_likelihood(params, cohort)
    for moved in (
        change_basis(params, rng.normal(size=(3, 3))),
        canonical_scaling(params),
        whitened(params, F),
    ):
        assert_allclose(log_likelihood(moved, cohort), wanted, rtol=1e-9)
        assert_array_equal(moved.D, params.D)
    X = rng.normal(size=(3, 3))
    step = jax.scipy.linalg.expm(1e-6 * X)
    slope = (change_basis(params, step).B - params.B) / 1e-6
    assert_allclose(derivative(params, X).B, slope, rtol=1e-4, atol=1e-5)


def test_static_states_have_no_inputs():
    core = random_params(np.random.default_rng(0), 2, 3, p=2)
    whole = with_own_levels(core, np.zeros(3), np.eye(3))
    assert_array_equal(whole.B[2:], 0)
    assert_array_equal(leading_states(whole, 2).B, core.B)
    assert_array_equal(leading_states(whole, 2).D, core.D)


def test_a_step_of_the_filter_takes_an_input():
    params = random_params(np.random.default_rng(0), 2, 3, p=2)
    u = np.array([1.0, -2.0])
    state = Gaussian(np.ones(2), np.eye(2))
    with_u, without = (
        predict(state, params.A, params.Q, params.B, u),
        predict(state, params.A, params.Q),
    )
    assert_allclose(with_u.mean, without.mean + params.B @ u)
    assert_array_equal(with_u.cov, without.cov)


# ---- simulation


def test_simulation_adds_what_inputs_add():
    """The same noise with inputs and without: the difference is the mean that inputs make."""
    params = random_params(np.random.default_rng(0), 2, 3, 0.8, p=2)
    us = [np.random.default_rng(n).normal(size=(t, 2)) for n, t in enumerate((4, 2))]
    found = simulate(jax.random.key(0), params, [4, 2], inputs=us, input_names=["a", "b"])
    plain = simulate(jax.random.key(0), LDSParams(*params[:6]), [4, 2])
    assert found.cohort.inputs == ("a", "b")
    for n, u in enumerate(us):
        z = np.zeros(2)
        for t, u_t in enumerate(u):
            z = params.A @ z + params.B @ u_t
            assert_allclose(found.states[n, t], plain.states[n, t] + z, rtol=1e-9)
            y = plain.cohort.y[n, t] + params.C @ z + params.D @ u_t
            assert_allclose(found.cohort.y[n, t], y, rtol=1e-9)
    with pytest.raises(ValueError, match="params have 2 inputs, and inputs is None"):
        simulate(jax.random.key(0), params, [4])
    with pytest.raises(ValueError, match="inputs has 1"):
        simulate(jax.random.key(0), params, [4], inputs=[np.ones((4, 1))])


def test_a_cohort_is_a_pytree():
    cohort = small()
    assert len(jax.tree.leaves(cohort)) == 5
    assert jax.jit(lambda c: c.u.sum())(cohort) == cohort.u.sum()
    bare = replace(cohort, u=None, ahead=None)
    assert len(jax.tree.leaves(bare)) == 3
