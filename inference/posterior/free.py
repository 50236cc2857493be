"""What is sampled: the free parameters, with priors on the scale of the states, in the shapes that the fit kept."""

import warnings
from collections.abc import Mapping, Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist

from ...models import Cohort, Prior, default_priors
from ...models.conjugate import VarianceGuess
from ...models.covariance_site import BlockInverseWishart
from ...models.priors import ColumnLaplace, InputSpikes, SpikeSlab, embedded
from ...models.priors.distribution import WithZeros
from ..constraints import COVARIANCES
from ..identifiability import Identifiability, identifiability_report
from ..result import FitResult
from .frame import SITE, frame_of
from .target import Free, Target


def default_free(fit: FitResult) -> tuple[str, ...]:
    """Return all parameters that the basis allows to be sampled.

    Those that the fit learned; without C where C alone fixes the basis; A alone, the rest held, where nothing does.
    """
    learned = [name for name in fit.params._fields if fit.constraints.free(name)]
    if fit.constraints.Q == "unit diagonal" and "Q" in learned:
        learned.remove("Q")  # its correlations have no coordinates here
    for left_out in ((), ("C",), ("C", "Q"), ("C", "Q", "V1", "pi1")):
        free = tuple(name for name in learned if name not in left_out)
        if directions_left(fit, free).n_directions == 0 or _rotations_only(fit, free):
            return free
    return tuple(name for name in learned if name == "A") or tuple(learned)


def _rotations_only(fit: FitResult, free: tuple[str, ...]) -> bool:
    """Tell whether Q = I leaves the rotations alone, between which the prior on A chooses."""
    return fit.constraints.Q == "identity" and "Q" not in free


def checked_free(free: str | Sequence[str], fit: FitResult) -> tuple[str, ...]:
    """Return the names of the free parameters in their order; raise if there are none or one cannot be sampled."""
    names = (free,) if isinstance(free, str) else tuple(free)
    if not names:
        raise ValueError("free is empty: with no free parameter there is nothing to sample")
    for name in names:
        if name not in fit.params._fields:
            raise ValueError(f"free names {name!r}; it may name {', '.join(fit.params._fields)}")
    if fit.constraints.own_levels and "C" in names:
        raise ValueError(
            "free names 'C', which levels of the sequences' own know a part of; hold it"
        )
    if fit.constraints.Q == "unit diagonal" and "Q" in names:
        raise ValueError("free names 'Q', which the fit kept a correlation matrix; hold it")
    return tuple(name for name in fit.params._fields if name in names)


def directions_left(fit: FitResult, free: tuple[str, ...]) -> Identifiability:
    """Return the changes of basis that are open where only `free` is sampled, in the shapes of the fit."""
    held = [name for name in fit.params._fields if name not in free]
    return identifiability_report(fit.params, fit.constraints.holding(*held))


def check_identified(
    fit: FitResult, free: tuple[str, ...], prior: Prior, priors: Mapping, *, asked: bool
) -> int:
    """Return how many directions of change of basis are left; raise if the posterior is improper.

    Where the free parameters were `asked` for they are warned of at once; else the verdict on the draws says it.
    """
    report = directions_left(fit, free)
    if not report.n_directions:
        return 0
    if "A" in free and "A" not in priors and not prior.is_proper:
        raise ValueError(
            f"the prior {prior!r} is flat, and {report.n_directions} directions of change of basis are left: the "
            "posterior is improper; hold C, or give a prior with beta > 0"
        )
    if asked:
        warnings.warn(f"{report}\nThe entries of A will not mix, or mean little.", stacklevel=4)
    return report.n_directions


def site_prior(fit: FitResult, prior: Prior, priors: Mapping[str, Any]) -> Prior:
    """Return the prior of the whole A, for a prior on the A of the states that move."""
    if "A" in priors or not fit.constraints.own_levels:
        return prior
    return embedded(prior, fit.params.n_channels)


def site_priors(
    cohort: Cohort,
    fit: FitResult,
    free: tuple[str, ...],
    priors: Mapping[str, Any],
    as_fitted: bool = True,
) -> dict[str, Any]:
    """Return the priors of the free parameters other than A: those given, else the fit's, else weak ones.

    A Laplace prior of B has a β that was chosen for zeros: it judges them only if B is to be sampled `as_fitted`.
    Covariances are sampled in the shape that the fit kept, in which an inverse-Wishart prior is one of blocks.
    """
    k, l, d = fit.n_states, fit.params.n_states, fit.params.n_channels
    weak = fit.constraints.weak_priors(cohort, k, fit.params)
    identity = k == d and np.array_equal(fit.moving.C, np.eye(d))
    if "Q" in free and "C" not in free and not (identity or fit.constraints.own_levels):
        weak |= _as_fitted(fit)
    if "B" in free:
        weak["B"] = _of_inputs(cohort, fit, identity)
    own = dict(fit.priors)
    of_B = own.get("B")
    if not as_fitted and isinstance(getattr(of_B, "base_dist", of_B), dist.Laplace | ColumnLaplace):
        del own["B"]
    known = {**default_priors(cohort, l), **weak, **own, **priors}
    found = {name: known[name] for name in free if name in known}
    if isinstance(found.get("B"), SpikeSlab):
        columns, scale = (
            fit.constraints.columns("B", fit.params.n_inputs),
            weak["B"].base_dist.scale,
        )
        size = (
            jnp.asarray(scale)[:k, np.array(columns)] / 2
        )  # of an entry that moves a state by its own sd
        found["B"] = InputSpikes.of(found["B"], size, columns, fit.params.n_inputs, l - k)
    for name in {"B", "D"} & {*free}:
        if not isinstance(found[name], InputSpikes):
            found[name] = _with_zeros(name, found[name], fit)
    for name in free:
        if name not in COVARIANCES:
            continue
        size = d if name == "R" else l
        blocks = fit.constraints.covariance(name, fit.params).blocks(size)
        if isinstance(found[name], dist.InverseWishart):
            found[name] = BlockInverseWishart.restricted(found[name], blocks, size)
        elif blocks != (size,):
            raise ValueError(
                f"priors[{name!r}] is a {type(found[name]).__name__}, and the fit kept {fit.constraints}; give "
                "numpyro's InverseWishart, whose blocks are known, or a fit that kept nothing"
            )
    return found


def _of_inputs(cohort: Cohort, fit: FitResult, levels: bool) -> Any:
    """Return a weak prior of B: a usual value of an input moves a state by up to a few of the state's own sd.

    States that are levels have the sd of their channels, others one for all, so that they are not told apart.
    """
    l, u = fit.params.n_states, np.asarray(cohort.u)
    size = np.sqrt((u**2).sum((0, 1)) / np.asarray(cohort.lengths).sum())
    V1, Q = (np.diagonal(getattr(fit.params, name)) for name in ("V1", "Q"))
    sd = np.full(l, np.sqrt((V1 + Q + np.asarray(fit.params.pi1) ** 2).mean()))
    if levels:
        sd[: fit.n_states] = np.sqrt(VarianceGuess.of(cohort).variance)
    return dist.Normal(0.0, jnp.asarray(2 * sd[:, None] / np.where(size > 0, size, 1))).to_event(2)


def _with_zeros(name: str, prior: Any, fit: FitResult) -> Any:
    """Return the prior of B or D, without the columns that are not there and the rows of static states."""
    shape = getattr(fit.params, name).shape
    zero = np.ones(shape, bool)
    rows = fit.n_states if name == "B" else shape[0]
    zero[:rows, fit.constraints.columns(name, fit.params.n_inputs)] = False
    if not zero.any():
        return prior
    base = getattr(prior, "base_dist", prior)
    if not isinstance(base, dist.Normal | dist.Laplace):
        raise ValueError(
            f"priors[{name!r}] is a {type(base).__name__}, and {fit.constraints} is kept; give Normal or Laplace"
        )
    return WithZeros(base, zero)


def _as_fitted(fit: FitResult) -> dict[str, Any]:
    """Return weak priors of Q, V1 and π1 on the scale that a C which is held gives the states: that of the fit."""
    k = fit.n_states
    variances = {name: np.diagonal(getattr(fit.params, name)) for name in ("Q", "V1")}
    near = {
        name: dist.InverseWishart(float(k), scale_matrix=jnp.diag((2 * k + 1) * jnp.asarray(x)))
        for name, x in variances.items()
    }
    width = variances["V1"] + np.asarray(fit.params.pi1) ** 2
    return {**near, "pi1": dist.Normal(jnp.zeros(k), jnp.sqrt(width)).to_event(1)}


def framed(target: Target, free: Free, fit: FitResult, n_directions: int) -> Target:
    """Return a target whose rotations are drawn apart, if all of them are open and the prior on A alone tells them.

    Otherwise, or where a rotation hardly moves the fit, the target as it is.
    """
    l = fit.params.n_states
    own_site = "A" in target.priors or target.prior.start(target.params.A).keys() != {"A"}
    told = any(tells_apart(name, prior) for name, prior in target.priors.items())
    rotations = {"A", "C", "pi1", "V1"} <= {*free.names} and n_directions == l * (l - 1) // 2 > 0
    if not rotations or free.forced or own_site or told or "B" in fit.params._fields:
        return target
    frame = frame_of(fit.params)
    if frame is None:
        return target
    return target._replace(frame=frame, given={SITE: jnp.eye(l, dtype=target.params.A.dtype)})


def tells_apart(name: str, prior: Any) -> bool:
    """Tell whether the prior of a parameter tells states apart, by their order or their sign."""
    if name in ("R", "D"):
        return False
    if name in COVARIANCES and isinstance(prior, BlockInverseWishart):
        S = np.asarray(prior.scale_matrix)
        return not np.array_equal(S, S[0, 0] * np.eye(len(S)))
    base = getattr(prior, "base_dist", None)
    if name in ("C", "pi1", "B") and isinstance(base, dist.Normal):
        scale = np.broadcast_to(np.asarray(base.scale), prior.event_shape)
        states = -2 if name == "B" else -1
        return bool(np.any(np.asarray(base.loc))) or bool(np.ptp(scale, axis=states).any())
    return True
