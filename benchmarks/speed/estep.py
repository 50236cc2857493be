"""Time the E-step and the gradient of the log-likelihood beside dynamax, pykalman and statsmodels.

Same cohort, same parameters, float64, one run. Times are medians over interleaved repeats, blocked until ready, with
compile time apart. The results are checked to agree.

    python benchmarks estep            # everything, some minutes
    python benchmarks estep --quick    # the smallest size only
    python benchmarks estep --only inputs
"""

import argparse
import warnings
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
from timing import side_by_side

from sparse_lds.models import (
    LDSParams,
    expected_statistics,
    log_likelihood,
    simulate,
    total_log_likelihood,
)

warnings.filterwarnings("ignore")  # of the other packages

SIZES = {  # (l, d, N, T): bars for the E-step and the gradient, as ratios to dynamax
    (5, 3, 100, 50): (2, 2),
    (10, 3, 500, 50): (30, 5),
    (15, 3, 1000, 100): (10, None),
}
INPUT_BARS = {(5, 3, 100, 50): 2, (10, 3, 500, 50): 20}  # ratios to dynamax with inputs


def problem(l: int, d: int, N: int, T: int, gaps: float = 0.0, p: int = 0):
    """Draw a stable LDS, and a cohort from it; `gaps` is the fraction of cells missing, p the number of inputs."""
    rng = np.random.default_rng(0)
    A = rng.normal(size=(l, l))
    A *= 0.95 / np.abs(np.linalg.eigvals(A)).max()
    C, pi1 = rng.normal(size=(d, l)) / np.sqrt(l), np.zeros(l)
    params = LDSParams(A, C, 0.3 * np.eye(l), 0.2 * np.eye(d), pi1, np.eye(l))
    inputs = None
    if p:
        params = params._replace(B=rng.normal(size=(l, p)), D=rng.normal(size=(d, p)))
        inputs = list(rng.normal(size=(N, T, p)))
    params = LDSParams(*(jnp.asarray(x) for x in params))
    cohort = simulate(jax.random.key(0), params, [T] * N, inputs=inputs).cohort
    if gaps:
        holes = rng.random(cohort.y.shape) < gaps
        cohort = type(cohort).from_array(np.where(holes, np.nan, cohort.y), inputs=inputs)
    return params, cohort


def ours(params, cohort):
    """Make E-step and gradient, each with the data compressed where it can be, and sequence by sequence."""
    estep = jax.jit(lambda p: expected_statistics(p, cohort))
    weights = np.ones(len(cohort))
    every = jax.jit(lambda p: expected_statistics(p, cohort, weights))  # no compression of the data
    gradient = jax.jit(jax.value_and_grad(lambda p: total_log_likelihood(p, cohort)))
    each = jax.jit(jax.value_and_grad(lambda p: log_likelihood(p, cohort).sum()))
    return tuple(partial(f, params) for f in (estep, every, gradient, each))


def dynamax_model(params):
    """Make model, parameters, properties. The conjugate class: the plain one's batched M-step is wrong for N > 1."""
    from dynamax.linear_gaussian_ssm import LinearGaussianConjugateSSM

    model = LinearGaussianConjugateSSM(
        params.n_states,
        params.n_channels,
        input_dim=params.n_inputs,
        has_dynamics_bias=False,
        has_emissions_bias=False,
    )
    inputs = {}
    if params.n_inputs:
        inputs = {"dynamics_input_weights": params.B, "emission_input_weights": params.D}
    return model, *model.initialize(
        **inputs,
        initial_mean=params.pi1,
        initial_covariance=params.V1,
        dynamics_weights=params.A,
        dynamics_covariance=params.Q,
        emission_weights=params.C,
        emission_covariance=params.R,
    )


def dynamax(params, cohort):
    """Make dynamax's E-step and gradient, over all sequences."""
    model, theirs, _ = dynamax_model(params)
    y = jnp.asarray(cohort.y)
    if (
        cohort.u is not None
    ):  # there B u_t moves the next state: another likelihood, at the same cost
        u = jnp.asarray(cohort.u)
        estep = jax.jit(lambda p: jax.vmap(lambda x, u: model.e_step(p, x, u))(y, u))
        return partial(estep, theirs), None
    estep = jax.jit(lambda p: jax.vmap(lambda x: model.e_step(p, x))(y))
    gradient = jax.jit(
        jax.value_and_grad(lambda p: jax.vmap(lambda x: model.marginal_log_prob(p, x))(y).sum())
    )
    return partial(estep, theirs), partial(gradient, theirs)


def products_alone(params, cohort):
    """Make the floor: one pass of each large matrix product of the E-step, as batched products without a scan."""
    l, d = params.n_states, params.n_channels
    N, T = len(cohort), cohort.n_steps
    key = jax.random.key(0)
    L, z = jax.random.normal(key, (T, l, l)), jax.random.normal(key, (T, l, N))
    G, y = jax.random.normal(key, (T, l, d)), jax.random.normal(key, (T, d, N))

    @jax.jit
    def run(L, z, G, y):
        means, back, smooth = L @ z, L.mT @ z, L @ (z + 1)
        into, out = G @ y, G.mT @ z
        sums = (z @ z.mT).sum(0), (z[1:] @ z[:-1].mT).sum(0), (y @ z.mT).sum(0)
        return means.sum(), back.sum(), smooth.sum(), into.sum(), out.sum(), sums

    return partial(run, L, z, G, y)


def check_agreement(params, cohort, estep, gradient, estep_dx, gradient_dx):
    """Raise unless both packages agree, up to the 1e-9 that dynamax adds to the diagonals it inverts."""
    value, grads = gradient()
    value_dx, grads_dx = gradient_dx()
    np.testing.assert_allclose(value, value_dx, rtol=1e-7)
    scale = float(jnp.abs(grads.A).max())
    np.testing.assert_allclose(grads.A, grads_dx.dynamics.weights, atol=1e-6 * scale)
    (_, dynamics, _), _ = estep_dx()
    S00 = estep().S00
    np.testing.assert_allclose(S00, np.asarray(dynamics[0]).sum(0), atol=1e-6 * float(S00.max()))


def compare(sizes, repeats) -> pd.DataFrame:
    """Time E-step and gradient of whole cohorts, ours and dynamax's."""
    rows = []
    for size in sizes:
        params, cohort = problem(*size)
        estep, every, gradient, each = ours(params, cohort)
        estep_dx, gradient_dx = dynamax(params, cohort)
        times = side_by_side(
            {
                "E-step": estep,
                "E-step, every sequence": every,
                "E-step, dynamax": estep_dx,
                "gradient": gradient,
                "gradient, every sequence": each,
                "gradient, dynamax": gradient_dx,
                "products alone": products_alone(params, cohort),
            },
            max(5, repeats // (1 + size[2] // 300)),
        )
        ms = times["ms"]
        check_agreement(params, cohort, estep, gradient, estep_dx, gradient_dx)
        bars = SIZES.get(size, (None, None))
        rows.append(
            {
                "l, d, N, T": size,
                "E-step ms": ms["E-step"],
                "every sequence ms": ms["E-step, every sequence"],
                "dynamax ms": ms["E-step, dynamax"],
                "ratio": ms["E-step, dynamax"] / ms["E-step"],
                "ratio, every": ms["E-step, dynamax"] / ms["E-step, every sequence"],
                "bar": bars[0],
                "gradient ms": ms["gradient"],
                "every sequence  ms": ms["gradient, every sequence"],
                "dynamax  ms": ms["gradient, dynamax"],
                "ratio ": ms["gradient, dynamax"] / ms["gradient"],
                "ratio, every ": ms["gradient, dynamax"] / ms["gradient, every sequence"],
                "bar ": bars[1],
                "floor ms": ms["products alone"],
                "first call s": times.loc["E-step", "first s"],
            }
        )
    return pd.DataFrame(rows).set_index("l, d, N, T")


def with_inputs(sizes, repeats, p: int = 2) -> pd.DataFrame:
    """Time the E-step of models with p inputs: beside the same without, and beside dynamax with them."""
    rows = {}
    for size in sizes:
        params, cohort = problem(*size, p=p)
        functions = {
            "with": ours(params, cohort)[0],
            "without": ours(*problem(*size))[0],
            "gaps with": ours(*problem(*size, gaps=0.1, p=p))[0],
            "gaps without": ours(*problem(*size, gaps=0.1))[0],
            "dynamax": dynamax(params, cohort)[0],
        }
        ms = side_by_side(functions, max(5, repeats // (1 + size[2] // 300)))["ms"]
        rows[size] = {
            "E-step ms": ms["with"],
            "without inputs ms": ms["without"],
            "times (bar 1.3)": ms["with"] / ms["without"],
            "dynamax ms": ms["dynamax"],
            "ratio": ms["dynamax"] / ms["with"],
            "bar": INPUT_BARS.get(size),
            "10% of cells missing ms": ms["gaps with"],
            "times": ms["gaps with"] / ms["gaps without"],
        }
    return pd.DataFrame(rows)


def one_sequence(repeats) -> pd.DataFrame:
    """Time one sequence, which is all that pykalman and statsmodels take: l = 5, d = 3, T = 50."""
    from pykalman import KalmanFilter
    from statsmodels.tsa.statespace.kalman_smoother import KalmanSmoother

    params, cohort = problem(5, 3, 1, 50)
    A, C, Q, R, pi1, V1 = (np.asarray(x) for x in params)
    y = cohort.sequence(0)
    kf = KalmanFilter(A, C, Q, R, initial_state_mean=pi1, initial_state_covariance=V1)
    ks = KalmanSmoother(k_endog=3, k_states=5, k_posdef=5)
    ks.bind(np.asfortranarray(y.T))
    ks["design"], ks["transition"], ks["selection"] = C, A, np.eye(5)
    ks["obs_cov"], ks["state_cov"] = R, Q
    ks.initialize_known(pi1, V1)
    estep, _, gradient, _ = ours(params, cohort)
    many, many_cohort = problem(5, 3, 100, 50)
    estep_100, *_ = ours(many, many_cohort)
    value = float(gradient()[0])
    np.testing.assert_allclose(value, kf.loglikelihood(y), rtol=1e-8)
    np.testing.assert_allclose(value, ks.smooth().llf, rtol=1e-8)
    table = side_by_side(
        {
            "sparse-lds, E-step": estep,
            "sparse-lds, E-step of 100 sequences": estep_100,
            "pykalman, smoother": lambda: kf.smooth(y),
            "statsmodels, smoother": lambda: ks.smooth().llf,
        },
        repeats,
    )[["ms"]]
    table["ratio to ours"] = table["ms"] / table["ms"].iloc[0]
    return table


def growth(repeats) -> pd.DataFrame:
    """Time how an E-step grows as N, T and l double from (l, d, N, T) = (5, 3, 100, 50)."""
    base = (5, 3, 100, 50)
    rows = {}
    for name, axis in (("N", 2), ("T", 3), ("l", 0)):
        for factor in (1, 2, 4, 8):
            size = tuple(x * factor if i == axis else x for i, x in enumerate(base))
            if name == "l" and factor > 4:
                continue
            estep, every, *_ = ours(*problem(*size))
            gappy, *_ = ours(*problem(*size, gaps=0.1))
            functions = {"E-step": estep, "every": every, "gaps": gappy}
            ms = side_by_side(functions, max(5, repeats // factor))["ms"]
            rows[name, f"x{factor}"] = {
                "E-step ms": ms["E-step"],
                "every sequence ms": ms["every"],
                "10% of cells missing ms": ms["gaps"],
            }
    return pd.DataFrame(rows).T


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--quick", action="store_true", help="the smallest size only")
    parser.add_argument("--repeats", type=int, default=60)
    parser.add_argument("--only", choices=["inputs"], help="models with p = 2 inputs alone")
    args = parser.parse_args()
    jax.config.update("jax_enable_x64", True)
    pd.set_option("display.width", 200, "display.max_columns", 20, "display.precision", 3)
    sizes = list(SIZES)[:1] if args.quick else list(SIZES)
    if args.only is None:
        print("Whole cohorts against dynamax (vmapped and jitted)\n")
        print(compare(sizes, args.repeats).T.to_string(), "\n")
    print("With p = 2 inputs\n")
    print(with_inputs(sizes[:2], args.repeats).to_string(), "\n")
    if args.only is not None:
        return
    print("One sequence, l = 5, d = 3, T = 50\n")
    print(one_sequence(args.repeats).to_string(), "\n")
    if not args.quick:
        print("Growth from l, d, N, T = 5, 3, 100, 50\n")
        print(growth(args.repeats).to_string())


if __name__ == "__main__":
    main()
