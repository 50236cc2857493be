"""From stored values to the user's units and back: shift, scale, and logarithms of channels that are positive."""

from collections.abc import Iterable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from .labels import Labels, name_cell


def is_logged(labels: Labels) -> np.ndarray:
    """Tell which channels are stored as logarithms, (d,)."""
    return np.array([name in labels.logged for name in labels.channels])


def unscaled(labels: Labels, values: Any) -> Any:
    """Return values (..., d) with shift and scale undone: in the user's units, but for the logarithms."""
    x = _floating(labels, values, 1)
    shape = (1,) * (x.ndim - 1) + (-1,)  # of the rank of x: JAX may be set to refuse promotion
    shift, scale = (np.array(v, x.dtype) for v in (labels.shift, labels.scale))
    return shift.reshape(shape) + scale.reshape(shape) * x


def in_units(labels: Labels, values: Any) -> Any:
    """Return stored values (..., d) in the user's units, see `Cohort.to_units`."""
    x = unscaled(labels, values)
    if not labels.logged:
        return x
    xp: Any = jnp if isinstance(x, jax.Array) else np
    logged = np.broadcast_to(is_logged(labels), x.shape)
    # the exponential of logged channels alone: of others it may overflow
    return xp.where(logged, xp.exp(xp.where(logged, x, xp.zeros_like(x))), x)


def cov_in_units(labels: Labels, cov: Any) -> Any:
    """Return covariances (..., d, d) in the user's units, see `Cohort.to_units_cov`."""
    x = _floating(labels, cov, 2)
    if labels.logged:
        raise ValueError(
            f"to_units_cov has no answer for logged channels ({', '.join(labels.logged)}): a covariance of logarithms "
            "is none of values; give quantiles, such as mean ± 1.64 sd, to to_units instead"
        )
    scale = np.outer(labels.scale, labels.scale).astype(x.dtype)
    return scale.reshape((1,) * (x.ndim - 2) + scale.shape) * x


def channels_to_log(labels: Labels, channels: Iterable[str] | None) -> tuple[str, ...]:
    """Return the logged channels once those named (None: all) are logged, too; raise for one that cannot be."""
    if isinstance(channels, str):
        raise TypeError(f"channels is the string {channels!r}; give a list of names")
    wanted = labels.channels if channels is None else tuple(map(str, channels))
    for name in wanted:
        if name not in labels.channels:
            raise ValueError(
                f"channels names {name!r}, which is none of {', '.join(labels.channels)}"
            )
    for name, shift, scale in zip(labels.channels, labels.shift, labels.scale, strict=True):
        if name in wanted and name not in labels.logged and (shift, scale) != (0.0, 1.0):
            raise ValueError(
                f"channel {name!r} is standardised already; take logarithms first: cohort.log().standardize()"
            )
    return tuple(c for c in labels.channels if c in wanted or c in labels.logged)


def log_values(labels: Labels, values: np.ndarray, logged: np.ndarray) -> np.ndarray:
    """Return values (N, T, d) with logarithms of the `logged` (d,) channels; raise where one is not positive."""
    bad = np.argwhere((values <= 0) & logged)
    if len(bad):
        at = tuple(bad[0])
        more = f" (so are {len(bad) - 1} more values)" if len(bad) > 1 else ""
        raise ValueError(
            f"{name_cell(labels, *at)} is {values[at]:g}{more}, and a logarithm needs a positive value: leave "
            f"{labels.channels[at[2]]!r} out of those to log, or replace such values, as by half the detection limit"
        )
    return np.where(logged, np.log(np.where(logged, values, 1.0)), values)


def _floating(labels: Labels, values: Any, ndim: int) -> Any:
    """Return values as floating-point numbers; raise unless their last axes are the channels."""
    x = values if isinstance(values, jax.Array) else np.asarray(values)
    if x.shape[-ndim:] != (len(labels.channels),) * ndim:
        raise ValueError(f"values have shape {x.shape}; the channels are {labels.channels}")
    return x if x.dtype.kind == "f" else x.astype(float)
