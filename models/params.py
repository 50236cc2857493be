"""The parameters Ω = {A, C, Q, R, π1, V1} of a linear dynamical system."""

from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Real

from .linalg import sym


class LDSParams(NamedTuple):
    """Parameters of an LDS with l states and d channels.

        z_1 ~ N(pi1, V1)
        z_t = A z_{t-1} + e_t,  e_t ~ N(0, Q)
        y_t = C z_t + v_t,      v_t ~ N(0, R)

    A pytree of jax or numpy arrays, unchecked so that it passes through `jit` and `vmap`;
    `check_params` validates on the host. The dtype decides the precision of a computation.
    """

    A: Real[Any, "*n l l"]  # transition
    C: Real[Any, "*n d l"]  # emission
    Q: Real[Any, "*n l l"]  # covariance of the transition noise
    R: Real[Any, "*n d d"]  # covariance of the emission noise
    pi1: Real[Any, "*n l"]  # mean of the first state
    V1: Real[Any, "*n l l"]  # covariance of the first state

    @property
    def n_states(self) -> int:
        """The number l of states."""
        return self.A.shape[-1]

    @property
    def n_channels(self) -> int:
        """The number d of channels."""
        return self.C.shape[-2]


def shapes_of(l: int, d: int) -> dict[str, tuple[int, ...]]:
    """Return the shape of every parameter of a model with l states and d channels."""
    return {"A": (l, l), "C": (d, l), "Q": (l, l), "R": (d, d), "pi1": (l,), "V1": (l, l)}


def check_params(
    params: LDSParams, n_channels: int | None = None, n_states: int | None = None
) -> LDSParams:
    """Check parameters on the host and return jax arrays of one floating dtype, covariances made symmetric.

    The dtype is that of the leaves, or JAX's default where they are integers.
    """
    arrays = host_arrays(params._asdict(), "params")
    check_array_shapes(arrays, "params", n_channels, n_states)
    dtype = jnp.promote_types(jnp.result_type(*map(np.asarray, params), float), jnp.float32)
    eps = float(jnp.finfo(dtype).eps)
    for name, X in arrays.items():
        if not np.isfinite(X).all():
            at = tuple(np.argwhere(~np.isfinite(X))[0].tolist())
            raise ValueError(f"params.{name} is {X[at]} at index {at}; every entry must be finite")
    for name in ("Q", "R", "V1"):
        X = arrays[name].astype(np.float64)
        gap = np.abs(X - X.T).max()
        if gap > np.sqrt(eps) * np.abs(X).max():
            raise ValueError(
                f"params.{name} is not symmetric: it differs from its transpose by {gap:.3g}; "
                f"use ({name} + {name}.T) / 2 if that is rounding"
            )
        arrays[name] = X = sym(X)
        if name == "Q":  # states without any noise are legal: rows of zeros
            noisy = X.any(0)
            X = X[np.ix_(noisy, noisy)]
        # Judged as a correlation matrix, so that states or channels may differ widely in scale.
        sd = np.sqrt(np.maximum(np.diagonal(X), 0.0))
        if (
            len(X)
            and not (sd > 0).all()
            or len(X)
            and np.linalg.eigvalsh(X / sd[:, None] / sd)[0] <= len(X) * eps
        ):
            smallest = np.linalg.eigvalsh(X)[0]
            raise ValueError(
                f"params.{name} is not positive definite in {dtype.name}: its smallest eigenvalue "
                f"is {smallest:.3g}; give a covariance of full rank, for example {name} + 1e-6 * I"
            )
    return LDSParams(**{name: jnp.asarray(X, dtype=dtype) for name, X in arrays.items()})


def host_arrays(fields: dict[str, Any], where: str) -> dict[str, Any]:
    """Return the fields as host arrays of real floating dtype; integers become float64."""
    arrays = {}
    for name, leaf in fields.items():
        try:
            X = np.asarray(leaf)
        except ValueError as error:
            raise ValueError(f"{where}.{name} is not a rectangular array: {error}") from error
        if X.dtype.kind not in "fiu":
            raise ValueError(f"{where}.{name} has dtype {X.dtype}; give an array of real numbers")
        arrays[name] = X if X.dtype.kind == "f" else X.astype(np.float64)
    return arrays


def check_array_shapes(arrays, where, n_channels=None, n_states=None) -> None:
    """Raise unless every shape follows from l (given, or the rows of A) and d (given, or the rows of C)."""
    l = n_states if n_states is not None else (*arrays["A"].shape, 0)[0]
    d = n_channels if n_channels is not None else (*arrays["C"].shape, 0)[0]
    if l < 1 or d < 1:
        raise ValueError(
            f"{where} has A of shape {arrays['A'].shape} and C of shape {arrays['C'].shape}; "
            "at least one state and one channel are needed"
        )
    for name, shape in shapes_of(l, d).items():
        if arrays[name].shape != shape:
            raise ValueError(
                f"{where}.{name} has shape {arrays[name].shape}; "
                f"with {l} states and {d} channels it must be {shape}"
            )
