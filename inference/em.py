"""EM for the ordinary LDS (OLDS) and MAP-EM for the sparse one (SLDS): one loop, two priors."""

from collections.abc import Sequence
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from tqdm.auto import tqdm

from ..models import (
    Cohort,
    Flat,
    LDSParams,
    Prepared,
    Prior,
    canonical_scaling,
    check_params,
    prepare,
    statistics,
)
from .anderson import Accelerator, flatten, start_accelerator, unflatten
from .basis import basis_step
from .initial import initial_params
from .mstep import Floors, Spec, m_step, stationarity

_CHUNK = 25  # iterations between two looks from the host: progress, Ctrl-C, basis steps
_WINDOW = 8  # differences kept by the accelerator


class FitResult(NamedTuple):
    """Where a fit ended, and why."""

    params: LDSParams
    objective: np.ndarray  # (n_iter,), log p(y | Ω) + log p(A) after each iteration
    n_iter: int
    converged: bool
    reason: str
    kkt_residual: float  # relative violation of the optimality conditions at the last step
    log_likelihood: float  # Σ log p(y_n | Ω)
    prior: Prior
    spec: Spec
    steps: dict[str, int]  # how many of each kind: em, accelerated, rejected, basis
    warnings: tuple[str, ...]


class State(NamedTuple):
    """Between two iterations: `params` is to be evaluated next, `safe` is an EM step from the last accepted point."""

    params: LDSParams
    safe: LDSParams
    objective: Array  # at the last accepted point
    residual: Array  # violation of the optimality conditions there
    accelerator: Accelerator | None
    trying: Array  # whether `params` is an extrapolation, to be rejected if the objective falls
    counts: Array  # (3,): EM steps, extrapolations kept, extrapolations rejected


@partial(jax.jit, static_argnames="spec")
def run(
    state: State, data: Prepared, prior: Prior, floors: Floors, spec: Spec, n: Array, tol: Array
) -> tuple[State, Array, Array]:
    """Up to n <= _CHUNK iterations, fewer if the optimality conditions hold to tol.

    Returns the state, the objective at the point that each iteration started from, and how many there were.
    """

    def iterate(state: State) -> State:
        stats = statistics(state.params, data)
        objective = stats.log_likelihood + prior.log_prob(state.params.A)
        fell = state.trying & ~(objective >= state.objective)  # NaN counts as a fall

        def reject(state: State) -> State:
            assert state.accelerator is not None
            return state._replace(
                params=state.safe,
                trying=jnp.asarray(False),
                counts=state.counts.at[2].add(1),
            )

        def accept(state: State) -> State:
            new, _ = m_step(stats, state.params, prior, floors, spec)
            residual = stationarity(stats, state.params, prior, new, spec)
            counts = state.counts.at[jnp.where(state.trying, 1, 0)].add(1)
            if state.accelerator is None:
                return State(new, new, objective, residual, None, jnp.asarray(False), counts)
            accelerator, point, ready = state.accelerator.extrapolate(
                flatten(state.params), flatten(new)
            )
            ahead = unflatten(point, new)
            ahead = LDSParams(
                *(
                    x if spec.free(name) else held
                    for name, x, held in zip(LDSParams._fields, ahead, new, strict=True)
                )
            )
            ready = ready & _above(ahead, floors, spec)
            ahead = jax.tree.map(lambda x, y: jnp.where(ready, x, y), ahead, new)
            return State(ahead, new, objective, residual, accelerator, ready, counts)

        if state.accelerator is None:
            return accept(state)
        return lax.cond(fell, reject, accept, state)

    def unfinished(carry):
        state, _, k = carry
        return (k < n) & (state.residual > tol)

    def body(carry):
        state, trace, k = carry
        state = iterate(state)
        return state, trace.at[k].set(state.objective), k + 1

    trace = jnp.full(_CHUNK, jnp.nan, state.objective.dtype)
    return lax.while_loop(unfinished, body, (state, trace, jnp.asarray(0)))


def _above(params: LDSParams, floors: Floors, spec: Spec) -> Array:
    """Whether the covariances that move are above their floors."""
    ok = jnp.asarray(True)
    for name, floor in zip(Floors._fields, floors, strict=True):
        if spec.free(name):
            S = getattr(params, name)
            ok &= jnp.isfinite(
                jnp.linalg.cholesky(S - floor * jnp.eye(len(S), dtype=S.dtype))
            ).all()
    return ok


@jax.jit
def _evaluate(params: LDSParams, data: Prepared, prior: Prior) -> tuple[Array, Array]:
    log_likelihood = statistics(params, data).log_likelihood
    return log_likelihood + prior.log_prob(params.A), log_likelihood


def fit_map(
    cohort: Cohort,
    n_states: int,
    prior: Prior,
    *,
    variant: str = "exact",
    accelerate: bool = True,
    init: LDSParams | str | None = None,
    hold: Sequence[str] = (),
    diagonal: Sequence[str] = (),
    max_iter: int = 2000,
    tol: float = 1e-5,
    progress: bool = False,
) -> FitResult:
    """Maximise log p(y | Ω) + log p(A) over Ω: MAP-EM for the sparse LDS.

    `variant="exact"` never lowers the objective; `"paper"` is Algorithm 1 to the letter. `init` is an
    `LDSParams`, or a method of `initial_params`. `hold` names parameters kept at their initial values,
    `diagonal` covariances kept diagonal. A fit has converged when the optimality conditions hold to
    `tol` (relative); `tol=0.0` runs all of `max_iter`. With `accelerate=False` an iteration is one plain EM
    step. Ctrl-C returns what was reached.
    """
    spec = _check(cohort, n_states, prior, variant, hold, diagonal, max_iter, tol)
    start = (
        init
        if isinstance(init, LDSParams)
        else initial_params(cohort, n_states, init or "subspace")
    )
    start = check_params(start, cohort.n_channels, n_states)
    start = start._replace(A=prior.prox(start.A, 0.0))  # forced zeros hold from the start
    return _fit(
        cohort, prior, start, spec, accelerate and variant == "exact", max_iter, tol, progress
    )


def fit_em(cohort: Cohort, n_states: int, **options) -> FitResult:
    """Maximise log p(y | Ω): EM for the ordinary LDS, which is `fit_map` with a flat prior.

    Takes the options of `fit_map`: init, hold, diagonal, accelerate, max_iter, tol, progress.
    """
    return fit_map(cohort, n_states, Flat(), **options)


def _fit(
    cohort: Cohort,
    prior: Prior,
    start: LDSParams,
    spec: Spec,
    accelerate: bool,
    max_iter: int,
    tol: float,
    progress: bool,
) -> FitResult:
    dtype = start.A.dtype
    data = prepare(cohort, dtype)
    floors = Floors(
        *(1e-9 * jnp.trace(getattr(start, k)) / len(getattr(start, k)) for k in Floors._fields)
    )
    state = _begin(start, accelerate)
    basis_free = (
        accelerate and not spec.diagonal and not set(spec.hold) & {"A", "C", "Q", "pi1", "V1"}
    )
    traces, done, bases, reason = [], 0, 0, "max_iter"
    bar = tqdm(total=max_iter, disable=not progress, desc="EM", unit="it")
    try:
        while done < max_iter:
            n = min(_CHUNK, max_iter - done)
            state, trace, k = run(
                state, data, prior, floors, spec, jnp.asarray(n), jnp.asarray(tol)
            )
            done, k = done + int(k), int(k)
            traces.append(np.asarray(trace)[:k])
            bar.update(k)
            bar.set_postfix(
                objective=f"{float(state.objective):.4f}", kkt=f"{float(state.residual):.1e}"
            )
            if not np.isfinite(float(state.objective)):
                reason = "not finite"
                break
            if float(state.residual) <= tol:
                reason = "tolerance"
                break
            if basis_free and not isinstance(prior, Flat):
                moved, gain = basis_step(state.safe, prior)
                if gain > 0:
                    bases += 1
                    fresh = _begin(moved, accelerate)
                    state = fresh._replace(counts=state.counts)
    except KeyboardInterrupt:
        reason = "interrupted"
    finally:
        bar.close()
    params = state.safe
    objective, log_likelihood = (float(x) for x in _evaluate(params, data, prior))
    objective_trace = np.append(np.concatenate([*traces, np.zeros(0)])[1:], objective)
    if not spec.diagonal and not spec.hold and np.ndim(prior.beta) == 0:
        params = canonical_scaling(params)
    # exact zeros without a sign, exact symmetry: fused arithmetic may differ in the last bit
    exact = {
        name: 0.5 * (S + S.T) for name, S in params._asdict().items() if name in Floors._fields
    }
    params = params._replace(A=jnp.where(params.A == 0, 0.0, params.A), **exact)
    em, kept, rejected = (int(x) for x in state.counts)
    return FitResult(
        params=params,
        objective=objective_trace,
        n_iter=done,
        converged=reason == "tolerance",
        reason=_REASONS[reason].format(tol=tol, max_iter=max_iter, residual=float(state.residual)),
        kkt_residual=float(state.residual),
        log_likelihood=log_likelihood,
        prior=prior,
        spec=spec,
        steps={"em": em, "accelerated": kept, "rejected": rejected, "basis": bases},
        warnings=_warnings(params, prior, spec),
    )


_REASONS = {
    "tolerance": "converged: the optimality conditions hold to {residual:.1e}, tol is {tol:g}",
    "max_iter": "stopped after max_iter = {max_iter} iterations, optimality conditions at {residual:.1e}",
    "interrupted": "interrupted; this is what was reached",
    "not finite": "the objective is not finite",
}


def _begin(params: LDSParams, accelerate: bool) -> State:
    dtype = params.A.dtype
    accelerator = start_accelerator(flatten(params).size, _WINDOW, dtype) if accelerate else None
    low, high = jnp.asarray(-jnp.inf, dtype), jnp.asarray(jnp.inf, dtype)
    counts = jnp.zeros(3, int)
    return State(params, params, low, high, accelerator, jnp.asarray(False), counts)


def _warnings(params: LDSParams, prior: Prior, spec: Spec) -> tuple[str, ...]:
    found = []
    scales = np.sqrt(np.diagonal(params.Q))
    if not isinstance(prior, Flat) and spec.free("Q") and scales.max() > 1e3 * scales.min():
        found.append(
            f"the scales of single states drift apart (ratio {scales.max() / scales.min():.1e}): the "
            "penalty on A can be lowered without end by rescaling states; hold Q to make the problem "
            "well posed"
        )
    radius = np.abs(np.linalg.eigvals(params.A)).max()
    if radius > 1:
        found.append(f"A is not stable: its spectral radius is {radius:.3f}")
    return tuple(found)


def _check(cohort, n_states, prior, variant, hold, diagonal, max_iter, tol) -> Spec:
    if isinstance(n_states, bool) or not isinstance(n_states, int | np.integer) or n_states < 1:
        raise ValueError(f"n_states is {n_states!r}; it must be a whole number, at least 1")
    if not isinstance(prior, Prior):
        raise TypeError(f"prior is {prior!r}; give Flat(), Laplace(beta) or GroupLaplace(beta, by)")
    if variant not in ("exact", "paper"):
        raise ValueError(f"variant is {variant!r}; it must be 'exact' or 'paper'")
    hold, diagonal = (hold,) if isinstance(hold, str) else tuple(hold), tuple(diagonal)
    for argument, names, known in (
        ("hold", hold, LDSParams._fields),
        ("diagonal", diagonal, Floors._fields),
    ):
        for name in names:
            if name not in known:
                raise ValueError(f"{argument} names {name!r}; it may name {', '.join(known)}")
    if int(max_iter) != max_iter or max_iter < 1:
        raise ValueError(f"max_iter is {max_iter}; it must be a whole number, at least 1")
    if not tol >= 0:
        raise ValueError(f"tol is {tol}; it must be 0 or more")
    if "A" not in hold and (np.asarray(cohort.lengths) < 2).all():
        raise ValueError(
            "every sequence has a single step, which says nothing on A; hold A, or give longer ones"
        )
    seen = np.atleast_1d(np.asarray(cohort.mask).any(axis=(0, 1)))
    unseen = [c for c, yes in zip(cohort.channels, seen, strict=True) if not yes]
    if unseen and not {"C", "R"} <= set(hold):
        raise ValueError(
            f"channel {unseen[0]!r} is entirely missing: nothing can be learned of it; leave it out"
        )
    return Spec(variant, tuple(sorted(hold)), tuple(sorted(diagonal)))
