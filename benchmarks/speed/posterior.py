"""Time NUTS on the marginal likelihood against (a) the states as latent sites and (b) dynamax's likelihood.

    python benchmarks posterior                # a few minutes
    python benchmarks posterior --gradients    # the gradients only

One run, float64, l, d, N, T = 5, 3, 50, 30, A free and the rest held, the same prior, NumPyro's NUTS with its own
defaults for all three, one chain, started at the fit; and once more ours as `sample_posterior` runs it. Gradient
evaluations a second: the median over repeats of a compiled loop of them. ESS a second: the least bulk ESS over
the entries of A, by the seconds of sampling after warm-up, compile time apart.
"""

import argparse
import warnings
from functools import partial

import arviz as az
import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import pandas as pd
from em import cohort_of
from estep import dynamax_model
from numpyro.infer import MCMC, NUTS
from numpyro.infer.util import initialize_model
from timing import seconds, timed

from sparse_lds.inference import diagnose, fit_map, sample_posterior
from sparse_lds.models import Laplace, explicit_lds_model, lds_model, prepare

warnings.filterwarnings("ignore")  # of the other packages

_GRADIENTS = 50


def dynamax_likelihood_model(cohort, n_states, prior, held):
    """State our model with the likelihood of dynamax, differentiated by JAX."""
    from dynamax.linear_gaussian_ssm import lgssm_filter

    A = numpyro.sample("A", prior.distribution(n_states))
    _, params, _ = dynamax_model(held._replace(A=A))
    filtered = jax.vmap(lambda y: lgssm_filter(params, y).marginal_loglik)
    numpyro.factor("y", filtered(jnp.asarray(cohort.y)).sum())


def run(model, args, kwargs, start, n_warmup, n_draws, repeats=9) -> dict:
    """Time the gradient of a model and, unless n_draws is 0, its draws after warm-up."""
    info = initialize_model(jax.random.key(0), model, model_args=args, model_kwargs=kwargs)
    gradient = jax.grad(info.potential_fn)

    @jax.jit
    def many(z):  # inside a compiled loop, as NUTS calls it
        def step(_, z):
            return jax.tree.map(lambda a, g: a - 1e-12 * g, z, gradient(z))

        return jax.lax.fori_loop(0, _GRADIENTS, step, z)

    z = info.param_info.z
    rate = {"gradients/s": _GRADIENTS / seconds(partial(many, z), repeats)}
    if not n_draws:
        return rate
    kernel = NUTS(model, init_strategy=numpyro.infer.init_to_value(values={"A": start}))
    mcmc = MCMC(kernel, num_warmup=n_warmup, num_samples=1, progress_bar=False)
    mcmc.warmup(jax.random.key(1), *args, **kwargs)

    @jax.jit
    def draw(state):  # the kernel's own steps: `mcmc.run` compiles at every call
        def step(state, _):
            state = kernel.sample(state, args, kwargs)
            return state, (state.z["A"], state.num_steps)  # A has no constraint: z is A itself

        return jax.lax.scan(step, state, length=n_draws)

    state, _ = draw(mcmc.last_state)  # compiles
    (_, (A, n_steps)), took = timed(partial(draw, state))
    A = np.asarray(A)[None]
    ess = min(float(az.ess(A[:, :, i, j])) for i, j in np.ndindex(A.shape[2:]))
    return {**rate, "steps a draw": float(n_steps.mean()), "ESS": ess, "ESS/s": ess / took}


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--draws", type=int, default=300)
    parser.add_argument("--gradients", action="store_true", help="gradients only")
    parser.add_argument("--explicit-draws", type=int, default=150, help="of (a), which is slow")
    args = parser.parse_args()
    jax.config.update("jax_enable_x64", True)
    cohort, prior = cohort_of(0), Laplace(5.0)
    fit = fit_map(cohort, 5, prior)
    held = {k: v for k, v in fit.params._asdict().items() if k != "A"}
    common = (cohort, 5, prior)
    runs = {
        "ours": (lds_model, common, {"held": held, "prepared": prepare(cohort, held["C"].dtype)}),
        "(a) states as sites": (explicit_lds_model, common, {"held": held}),
        "(b) dynamax's likelihood": (dynamax_likelihood_model, (*common, fit.params), {}),
    }
    rows = {}
    for name, parts in runs.items():
        n = args.explicit_draws if name.startswith("(a)") else args.draws
        rows[name] = run(*parts, fit.params.A, n, 0 if args.gradients else n)
        print(name, rows[name], flush=True)
    if args.gradients:
        return
    options = {"num_chains": 1, "num_samples": args.draws, "num_predictive": 0}
    sample = partial(sample_posterior, jax.random.key(2), cohort, fit)
    sample(**options)  # compiles
    posterior, took = timed(partial(sample, **options))
    table = diagnose(posterior).table
    ess = table.loc[table.index.str.startswith("A["), "ess_bulk"].min()
    steps = float(posterior["sample_stats"]["n_steps"].mean())
    rows["ours, sample_posterior (warm-up counted)"] = {
        "gradients/s": np.nan, "steps a draw": steps, "ESS": ess, "ESS/s": ess / took,
    }  # fmt: skip
    table = pd.DataFrame(rows).T
    table["ours / gradients"] = table.loc["ours", "gradients/s"] / table["gradients/s"]
    table["ours / ESS"] = table["ESS/s"].iloc[-1] / table["ESS/s"]
    print(table.to_string(float_format=lambda x: f"{x:.3g}"), "\n")

    for again in ("with compilation", "compiled"):
        posterior, took = timed(sample)
        print(f"sample_posterior, 4 chains x 1000 draws, {again}: {took:.1f} s")
    verdict = diagnose(posterior)
    ess = verdict.table.loc[verdict.table.index.str.startswith("A["), "ess_bulk"].min()
    print(f"least bulk ESS of A {ess:.0f}, {ess / took:.1f} a second in all\n{verdict}")


if __name__ == "__main__":
    main()
