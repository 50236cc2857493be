"""The LDS as a NumPyro model, twice: with its states integrated out, and with its states as sites."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpyro
import numpyro.distributions as dist
from jax import Array
from numpyro.contrib.control_flow import scan
from numpyro.distributions import constraints

from .cohort import Cohort
from .kalman.likelihood import log_likelihood
from .kalman.prepare import Prepared
from .params import PARAMETERS, LDSParams
from .priors import Flat, InputSpikes, Prior
from .simulation import sample_paths


class LDS(dist.Distribution):
    """The distribution p(y | Ω) of the N sequences of a cohort, states integrated out: batch (N,), event (T, d).

    Lengths, gaps and inputs are those of `cohort`; its values are not used. A draw fills the gaps and is NaN past the
    end of a sequence.
    """

    support = constraints.independent(constraints.real, 2)  # type: ignore[assignment]
    pytree_data_fields = ("params", "cohort")

    def __init__(self, params: LDSParams, cohort: Cohort, *, validate_args=None):
        self.params, self.cohort = params, cohort
        N, T, d = cohort.y.shape
        super().__init__((N,), (T, d), validate_args=validate_args)

    def log_prob(self, value, intermediates=None) -> Array:
        """Return log p(y_n | Ω), (..., N); entries of `value` at missing cells are ignored."""
        if jnp.ndim(value) > 3:
            return jax.vmap(self.log_prob)(value)
        y = jnp.where(self.cohort.mask, value, 0.0)
        return log_likelihood(self.params, replace(self.cohort, y=y))

    def sample(self, key: Any, sample_shape: tuple[int, ...] = ()) -> Array:
        """Draw y, sample_shape + (N, T, d)."""
        N, T, _ = self.cohort.y.shape
        _, y = sample_paths(key, self.params, (*sample_shape, N), T, inputs_of(self.cohort))
        inside = jnp.arange(T) < jnp.asarray(self.cohort.lengths)[:, None]
        return jnp.where(inside[..., None], y, jnp.nan)


def default_priors(cohort: Cohort, n_states: int) -> dict[str, dist.Distribution]:
    """Return weakly informative priors of all parameters but A, on the scale of the data.

    With s_j the root mean square of channel j:
        C_ji ~ N(0, s_j²),  R ~ InverseWishart(d + 2, diag(s²) / 4),
        Q, V1 ~ InverseWishart(l + 2, I),  π1 ~ N(0, I).
    InverseWishart(k + 2, Ψ) over k x k matrices has mean Ψ and no finite variance: it sets the scale, and little more.
    The scale of the states is arbitrary; Q's prior sets it near 1. With inputs, of root mean squares u_k,
        B_ik ~ N(0, 1 / u_k²),  D_jk ~ N(0, s_j² / u_k²).
    """
    l, d = n_states, cohort.n_channels
    seen = jnp.asarray(cohort.mask).sum((0, 1))
    square = (jnp.asarray(cohort.y) ** 2).sum((0, 1)) / jnp.maximum(seen, 1)
    # a channel that is always 0 or never seen has no scale; 1 is taken
    s = jnp.sqrt(jnp.where(square > 0, square, 1.0))
    unit = dist.InverseWishart(l + 2.0, scale_matrix=jnp.eye(l))
    inputs = {}
    if cohort.u is not None:
        u = _root_mean_squares(cohort)
        inputs["B"] = dist.Normal(0.0, jnp.broadcast_to(1 / u, (l, len(u)))).to_event(2)
        inputs["D"] = dist.Normal(0.0, s[:, None] / u).to_event(2)
    return {
        "C": dist.Normal(0.0, jnp.broadcast_to(s[:, None], (d, l))).to_event(2),
        "Q": unit,
        "R": dist.InverseWishart(d + 2.0, scale_matrix=jnp.diag(s**2 / 4)),
        "pi1": dist.Normal(jnp.zeros(l), 1.0).to_event(1),
        "V1": unit,
        **inputs,
    }


def _root_mean_squares(cohort: Cohort) -> Array:
    """Return the root mean square of each input, (p,); 1 for one that is always 0."""
    u = jnp.asarray(cohort.u)
    square = (u**2).sum((0, 1)) / jnp.asarray(cohort.lengths).sum()
    return jnp.sqrt(jnp.where(square > 0, square, 1.0))


def inputs_of(cohort: Cohort) -> Array | None:
    """Return the inputs (N, T, p) of a cohort as a jax array, or None."""
    return None if cohort.u is None else jnp.asarray(cohort.u)


def sample_params(
    cohort: Cohort,
    n_states: int,
    prior: Prior,
    priors: Mapping[str, dist.Distribution] | None,
    held: Mapping[str, Any] | LDSParams | None,
) -> LDSParams:
    """Sample the sites A, C, Q, R, pi1, V1, and B, D where the cohort has inputs; those held are deterministic."""
    known = PARAMETERS if cohort.n_inputs else LDSParams._fields
    held = held._asdict() if isinstance(held, LDSParams) else dict(held or {})
    given = {**default_priors(cohort, n_states), **(priors or {})}
    for argument, names in (("held", held), ("priors", priors or {})):
        unknown = set(names) - set(known)
        if unknown:
            raise ValueError(f"{argument} names {sorted(unknown)}; the parameters are {known}")

    def site(name):
        if name in held:
            return numpyro.deterministic(name, jnp.asarray(held[name]))
        if name == "A" and name not in given:
            return prior.site(n_states)
        own: Any = given[name]
        return own.site() if isinstance(own, InputSpikes) else numpyro.sample(name, own)

    return LDSParams(*(site(name) for name in known))


def lds_model(
    cohort: Cohort,
    n_states: int,
    prior: Prior = Flat(),  # noqa: B008, it is immutable
    *,
    priors: Mapping[str, dist.Distribution] | None = None,
    held: Mapping[str, Any] | LDSParams | None = None,
    prepared: Prepared | None = None,
) -> None:
    """Define the LDS with its states integrated out: A ~ prior, and y_n | Ω ~ `LDS` at site `y`.

    `priors` replaces any of `default_priors`; `held` gives the parameters that are held, and their values. For
    predictions wrap the model in `numpyro.handlers.uncondition`, which draws `y` instead of observing it. With
    `prepared`, which is `prepare(cohort, dtype)`, the likelihood enters as one factor: the same density, faster where
    many sequences have one length, and without the log-likelihoods of single sequences.
    """
    params = sample_params(cohort, n_states, prior, priors, held)
    if prepared is not None:
        numpyro.factor("y", prepared.log_likelihood(params))
        return
    with numpyro.plate("sequence", cohort.n_sequences):
        numpyro.sample("y", LDS(params, cohort), obs=jnp.asarray(cohort.y))


def explicit_lds_model(
    cohort: Cohort,
    n_states: int,
    prior: Prior = Flat(),  # noqa: B008
    *,
    priors: Mapping[str, dist.Distribution] | None = None,
    held: Mapping[str, Any] | LDSParams | None = None,
) -> None:
    """Define the LDS with its states as latent sites `z` (T, N, l), to teach and to check: the same posterior.

    z_1 ~ N(π1, V1),  z_t ~ N(A z_{t-1}, Q),  y_t ~ N(C z_t, R); with inputs, B u_t and D u_t are added to the means.
    """
    params = sample_params(cohort, n_states, prior, priors, held)
    A, C, Q, R, pi1, V1, B, D = params.eight
    N, T, d = cohort.y.shape
    seen = jnp.swapaxes(jnp.asarray(cohort.mask), 0, 1).astype(A.dtype)  # (T, N, d)
    y = jnp.swapaxes(jnp.asarray(cohort.y, A.dtype), 0, 1)
    Bu, Du = jnp.zeros((T, N, n_states), A.dtype), jnp.zeros((T, N, d), A.dtype)
    if cohort.u is not None:
        u = jnp.swapaxes(jnp.asarray(cohort.u, A.dtype), 0, 1)
        Bu, Du = u @ B.T, u @ D.T

    def step(z, x):
        y_t, o, is_first, Bu_t, Du_t = x
        with numpyro.plate("sequence", N):
            mean = jnp.where(is_first, pi1, z @ A.T) + Bu_t
            z = numpyro.sample("z", dist.MultivariateNormal(mean, jnp.where(is_first, V1, Q)))
            # a missing cell becomes an independent unit normal at its mean, whatever z
            cov = R * o[:, :, None] * o[:, None] + jnp.eye(d) * (1 - o)[:, None]
            numpyro.sample("y", dist.MultivariateNormal((z @ C.T + Du_t) * o, cov), obs=y_t)
        return z, None

    scan(step, jnp.zeros((N, n_states), A.dtype), (y, seen, jnp.arange(T) == 0, Bu, Du))
    # the density of those unit normals is a constant, to be taken off
    numpyro.factor("missing", 0.5 * jnp.log(2 * jnp.pi) * (1 - seen).sum())
