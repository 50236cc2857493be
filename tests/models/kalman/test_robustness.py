"""Long, stiff and nearly singular systems in both precisions; and what is said when one breaks."""

from dataclasses import replace
from importlib.metadata import version

import jax
import numpy as np
import oracles
import pytest
from numpy.testing import assert_array_equal
from oracles import Shape, random_params, random_problem

from sparse_lds.models import (
    Cohort,
    LDSParams,
    NumericalBreakdown,
    expected_statistics,
    forecast,
    kalman_filter,
    kalman_smoother,
    log_likelihood,
    plain_log_likelihood,
)
from sparse_lds.models.kalman import complete
from sparse_lds.models.kalman.prepare import arrange

both_precisions = pytest.mark.parametrize(
    "dtype", [np.float64, np.float32], ids=lambda t: t.__name__
)
AS_FOR_USERS: dict = {"xla_backend_optimization_level": 3}
if version("jaxlib").startswith("0.10."):  # see conftest.py
    AS_FOR_USERS["xla_cpu_use_fusion_emitters"] = True
more_or_fewer_states = pytest.mark.parametrize(("l", "d"), [(2, 4), (4, 2)])


def cast(params, dtype):
    return LDSParams(*(np.asarray(x, dtype) for x in params))


def rotation(rng, n):
    return np.linalg.qr(rng.normal(size=(n, n)))[0]


def sample(rng, params, T):
    """One sequence of the model, (T, d)."""
    A, C, Q, R, pi1, V1 = params
    e, v = (rng.multivariate_normal(np.zeros(len(S)), S, T) for S in (Q, R))
    z = [rng.multivariate_normal(pi1, V1)]
    for t in range(1, T):
        z.append(A @ z[-1] + e[t])
    return np.array(z) @ C.T + v


def regimes(l, d, small):
    """Systems that are hard in one way or another, the hard part being as small as `small`."""
    rng = np.random.default_rng([l, d])
    plain = random_params(rng, l, d, radius=0.9)
    turning = plain._replace(A=0.9999 * rotation(rng, l))
    same_rows = plain._replace(C=np.tile(plain.C[0], (d, 1)))
    U = rotation(rng, d) * np.where(np.arange(d) == 0, np.sqrt(small), 1.0)
    return {
        "plain": plain,
        "near unit roots": turning,
        "random walk": plain._replace(A=np.eye(l)),
        "collinear channels": same_rows,
        "nearly singular R": plain._replace(R=U @ U.T),
        "tiny R": plain._replace(R=small * plain.R),
        "tiny R, collinear channels": same_rows._replace(R=small * plain.R),
        "tiny Q": plain._replace(Q=small * plain.Q),
        "tiny Q, near unit roots": turning._replace(Q=small * plain.Q),
        "large V1": plain._replace(V1=plain.V1 / small),
        "large V1, tiny Q, near unit roots": turning._replace(
            Q=small * plain.Q, V1=plain.V1 / small
        ),
    }


def assert_definite(cov, what):
    cov = np.asarray(cov)
    assert_array_equal(cov, np.swapaxes(cov, -1, -2), err_msg=what)
    smallest = np.linalg.eigvalsh(cov.astype(np.float64)).min()
    assert smallest > 0, f"{what}: an eigenvalue is {smallest}"


@more_or_fewer_states
@both_precisions
def test_covariances_stay_definite_over_10000_steps(dtype, l, d):
    for what, params in regimes(l, d, small=1e-9 if dtype == np.float64 else 1e-5).items():
        params = cast(params, dtype)
        cohort = Cohort.from_array(
            sample(np.random.default_rng(0), cast(params, float), 10_000)[None]
        )
        filtered, smoothed = kalman_filter(params, cohort), kalman_smoother(params, cohort)
        for x in (*filtered, *smoothed):
            assert x.dtype == dtype
        assert_definite(filtered.cov, what)
        assert_definite(filtered.predicted_cov, what)
        assert_definite(smoothed.cov, what)


@more_or_fewer_states
@both_precisions
def test_covariances_stay_definite_where_v1_is_far_above_the_noise(dtype, l, d):
    """For 200 systems, V1 / R (and Q) of 0.01 / eps: beyond 1 / eps no matrix could hold the result."""
    k = np.sqrt(0.01 / np.finfo(dtype).eps)
    rng = np.random.default_rng(0)
    several = [random_params(rng, l, d, radius=0.95) for _ in range(200)]
    several = [
        p._replace(V1=k * p.V1, R=p.R / k, Q=p.Q / (k if i % 2 else 1))
        for i, p in enumerate(several)
    ]
    stack = cast([np.stack(x) for x in zip(*several, strict=True)], dtype)
    cohort = Cohort.from_array(rng.normal(size=(1, 50, d)))

    @jax.jit
    @jax.vmap
    def covariances(params):
        filtered, smoothed = kalman_filter(params, cohort), kalman_smoother(params, cohort)
        return {
            "filtered": filtered.cov,
            "predicted": filtered.predicted_cov,
            "smoothed": smoothed.cov,
            "filtered, complete": complete.forward(params, arrange(cohort, dtype)).Pf,
        }

    for what, x in covariances(stack).items():
        assert_definite(x, what)


@more_or_fewer_states
def test_single_precision_likelihood_is_near_that_of_double(l, d, close):
    """At the same parameters, over 10,000 steps, by both routes; compiled as for users, whose rounding counts."""
    for what, params in regimes(l, d, small=1e-5).items():
        params = cast(params, np.float32)
        in_double = cast(params, np.float64)
        cohort = Cohort.from_array(sample(np.random.default_rng(0), in_double, 10_000)[None])
        wanted = log_likelihood(in_double, cohort)
        # S has a condition number of some 1e5 where something is tiny: float32 is left with 3 digits
        rtol = 1e-6 if what in ("plain", "near unit roots", "random walk") else 1e-3
        for data in both(cohort):
            compiled = jax.jit(log_likelihood, compiler_options=AS_FOR_USERS)
            close("float32", compiled(params, data), wanted, rtol)


def both(cohort):
    """A complete cohort by the two routes."""
    return cohort, replace(cohort, complete=False)


def test_explosive_system_with_unequal_lengths_is_exact(close):
    rng = np.random.default_rng(0)
    params = random_params(rng, 2, 2, radius=1.05)
    cohort = Cohort.from_sequences([sample(rng, params, T) for T in (2, 100, 30)])
    wanted = oracles.log_likelihood(params, cohort), oracles.statistics(params, cohort)
    for data in both(cohort):
        result = log_likelihood(params, data), expected_statistics(params, data)
        for a, b in zip(*map(jax.tree.leaves, (result, wanted)), strict=True):
            close("explosive", a, b)


def test_padding_of_a_short_sequence_cannot_overflow(close):
    """An unobserved state would grow to 3^700: the padding takes part in the recursions, unseen."""
    rng = np.random.default_rng(0)
    params = random_params(rng, 2, 2, radius=3.0)._replace(pi1=np.zeros(2))
    # zeros: no other path of 700 steps could be followed in floating point
    cohort = Cohort.from_sequences([rng.normal(size=(2, 2)), np.zeros((700, 2))])
    wanted = oracles.log_likelihood(params, cohort.take([0]))
    for data in both(cohort):
        close("padding", log_likelihood(params, data)[:1], wanted)
        assert np.isfinite(expected_statistics(params, data).S11).all()


def breakdowns():
    """Parameters and a cohort that break, and what the message must say."""
    rng = np.random.default_rng(0)
    fine = random_params(rng, 2, 2, radius=0.5)
    y = rng.normal(size=(6, 2))
    late = y.copy()
    late[:3, 1] = np.nan
    singular = fine._replace(C=np.ones((2, 2)), R=np.ones((2, 2)), Q=np.eye(2), V1=np.eye(2))
    holes = np.diag([1.0, np.nan])
    return {
        "nan": (fine._replace(A=holes), y, "params.A holds a value that is not finite"),
        "indefinite Q": (fine._replace(Q=-9 * np.eye(2)), y, "params.Q is not positive semi-def"),
        "indefinite V1": (fine._replace(V1=-9 * np.eye(2)), y, "params.V1 is not positive semi-d"),
        "singular S": (singular, y, r"innovation covariance S = C P C' \+ R .* at step 0 of seq"),
        "singular S late": (singular, late, r"covariance S = C P C' \+ R .* at step 3 of seq"),
        "overflow": (fine._replace(A=1e160 * np.eye(2)), y, "state overflowed .* at step 1 of seq"),
    }


@pytest.mark.parametrize(
    "f",
    [log_likelihood, expected_statistics, kalman_filter, kalman_smoother],
    ids=lambda f: f.__name__,
)
def test_breakdown_names_the_matrix_and_the_step(f):
    for params, y, message in breakdowns().values():
        cohort = replace(Cohort.from_sequences([y], ids=["Ada"]), complete=False)
        with pytest.raises(NumericalBreakdown, match=message) as error:
            f(params, cohort)
        if "step" in message:
            assert "'Ada'" in str(error.value)
            assert "float64" in str(error.value)


def test_breakdown_is_named_on_the_shared_route_and_in_single_precision():
    params, y, message = breakdowns()["singular S"]
    cohort = Cohort.from_sequences([y])
    with pytest.raises(NumericalBreakdown, match=message + ".*float32"):
        log_likelihood(cast(params, np.float32), cohort)
    with pytest.raises(NumericalBreakdown, match=message):
        forecast(params, cohort, 2)


def test_smoother_names_a_predicted_covariance_that_it_cannot_invert():
    params, y, _ = breakdowns()["nan"]
    params = params._replace(A=np.diag([0.5, 0.0]), Q=np.diag([1.0, 0.0]))
    cohort = Cohort.from_sequences([y])
    assert np.isfinite(log_likelihood(params, cohort)).all()
    with pytest.raises(NumericalBreakdown, match="predicted covariance P .* at step 1 of seq"):
        kalman_smoother(params, cohort)


def test_breakdown_inside_a_transformation_is_nan():
    compiled = jax.jit(jax.value_and_grad(lambda p, c: log_likelihood(p, c).sum()))
    for what, (params, y, _) in breakdowns().items():
        cohort = replace(Cohort.from_sequences([y]), complete=False)
        value, slope = compiled(params, cohort)
        assert not np.isfinite(value), what
        assert not np.isfinite(slope.A).all(), what


@pytest.mark.parametrize(
    "f",
    [log_likelihood, plain_log_likelihood, expected_statistics, kalman_filter, kalman_smoother],
    ids=lambda f: f.__name__,
)
def test_wrong_shape_names_the_parameter(f):
    params, cohort = random_problem(0, Shape(3, 2, 2, 4))
    wrong = LDSParams(
        A=np.zeros((2, 3)),
        C=np.zeros((3, 3)),
        Q=np.eye(2),
        R=np.eye(3),
        pi1=np.zeros((3, 1)),
        V1=np.zeros(3),
    )
    for name, x in wrong._asdict().items():
        bad = params._replace(**{name: x})
        for call in (f, jax.jit(f)):
            with pytest.raises(ValueError, match=rf"params\.{name} has shape \({x.shape[0]},"):
                call(bad, cohort)
