"""Fields of our priors, checked where a prior is made: beta, centre and diagonal."""

import jax
import numpy as np
from numpyro.util import not_jax_tracer


def checked_beta(beta, ndim: int):
    """Return beta as a float, or as an array with `ndim` equal axes; its values are checked unless it is traced."""
    if not isinstance(beta, jax.Array):
        try:
            beta = np.array(beta, float)
        except (TypeError, ValueError) as error:
            raise ValueError(f"beta is {beta!r}; give a number or an array of numbers") from error
    shape = beta.shape
    if shape and (len(shape) != ndim or len(set(shape)) != 1 or 0 in shape):
        wanted = "(l, l)" if ndim == 2 else "(l,)"
        raise ValueError(f"beta has shape {shape}; give a number or an array {wanted}")
    if not_jax_tracer(beta):
        host = np.asarray(beta)
        bad = np.argwhere(~(host >= 0))  # NaN too
        if len(bad):
            at = tuple(bad[0].tolist())
            where = f" at index {at}" if at else ""
            raise ValueError(f"beta is {host[at]}{where}; it must be 0 or more, and may be inf")
    # A number is kept as one kind of leaf, which prints as it was written.
    return float(beta) if isinstance(beta, np.ndarray) and not shape else beta


def checked_center(center):
    """Return a centre: 0, "identity", or a square matrix of finite numbers; one that is traced is taken as it is."""
    if isinstance(center, str):
        if center != "identity":
            raise ValueError(f"center is {center!r}; give 0, 'identity' or a matrix (l, l)")
        return center
    if isinstance(center, jax.Array) and not not_jax_tracer(center):
        if center.ndim != 2 or center.shape[0] != center.shape[1]:
            raise ValueError(f"center has shape {center.shape}; give a matrix (l, l)")
        return center
    M = np.array(center, float)
    if M.ndim == 0 and M == 0:
        return 0.0
    if M.ndim != 2 or M.shape[0] != M.shape[1] or not np.isfinite(M).all():
        raise ValueError(f"center is {center!r}; give 0, 'identity' or a matrix (l, l)")
    return M


def checked_diagonal(diagonal: str) -> str:
    """Return "penalised" or "free", or raise an error."""
    if diagonal not in ("penalised", "free"):
        raise ValueError(f"diagonal is {diagonal!r}; it must be 'penalised' or 'free'")
    return diagonal


def positive(prior, *names: str) -> None:
    """Raise unless the named fields of a prior are positive numbers; those that are traced are taken as they are."""
    for name in names:
        value = getattr(prior, name)
        if not not_jax_tracer(value):
            continue
        if (
            np.ndim(value)
            or isinstance(value, str)
            or not (float(value) > 0 and np.isfinite(value))
        ):
            raise ValueError(f"{name} is {value!r}; it must be a positive number")


def checked_positive(name: str, value, shape: str):
    """Return a positive number as a float, or an array of them, of a shape such as (l, p); traced ones as they are."""
    if isinstance(value, jax.Array) and not not_jax_tracer(value):
        return value
    try:
        found = np.array(value, float)
    except (TypeError, ValueError) as error:
        raise ValueError(f"{name} is {value!r}; give a number or an array of numbers") from error
    ndim = shape.count(",") + (not shape.endswith(",)"))
    if found.ndim not in (0, ndim) or not (np.isfinite(found) & (found > 0)).all():
        raise ValueError(
            f"{name} is {value!r}; give a positive number, or an array {shape} of them"
        )
    return found if found.ndim else float(found)
