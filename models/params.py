"""The parameters Ω = {A, C, Q, R, π1, V1} of a linear dynamical system."""

import io
import json
import os
import zipfile
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from .files import write_whole


class LDSParams(NamedTuple):
    """Parameters of an LDS with l states and d channels.

        z_1 ~ N(pi1, V1)
        z_t = A z_{t-1} + e_t,  e_t ~ N(0, Q)
        y_t = C z_t + v_t,      v_t ~ N(0, R)

    A pytree of jax or numpy arrays, unchecked so that it passes through `jit` and `vmap`;
    `check_params` validates on the host. The dtype decides the precision of a computation.
    """

    A: Any  # (l, l) transition
    C: Any  # (d, l) emission
    Q: Any  # (l, l) covariance of the transition noise
    R: Any  # (d, d) covariance of the emission noise
    pi1: Any  # (l,)   mean of the first state
    V1: Any  # (l, l) covariance of the first state

    @property
    def n_states(self) -> int:
        return self.A.shape[-1]

    @property
    def n_channels(self) -> int:
        return self.C.shape[-2]


def spectral_radius(A) -> jax.Array:
    """max_i |λ_i(A)|, of a matrix (..., l, l) or of the A of an `LDSParams`."""
    A = A.A if isinstance(A, LDSParams) else A
    return jnp.abs(jnp.linalg.eigvals(jnp.asarray(A))).max(axis=-1)


def is_stable(A) -> jax.Array:
    """Whether the spectral radius is below 1: the states then have a stationary distribution."""
    return spectral_radius(A) < 1


@jax.jit
def change_basis(params: LDSParams, W) -> LDSParams:
    """The same distribution over y in the states Wz, for an invertible W (l, l).

    A → WAW⁻¹,  C → CW⁻¹,  Q → WQW',  pi1 → W pi1,  V1 → WV1W'.

    >>> params = LDSParams(np.diag([0.5, 1.0]), *(np.eye(2) for _ in range(3)), np.zeros(2), np.eye(2))
    >>> np.asarray(change_basis(params, np.array([[1.0, 1.0], [0.0, 1.0]])).A).tolist()
    [[0.5, 0.5], [0.0, 1.0]]
    """
    A, C, Q, R, pi1, V1 = map(jnp.asarray, params)
    W = jnp.asarray(W)

    def right_divide(X):  # X W⁻¹
        return jnp.linalg.solve(W.T, X.T).T

    return LDSParams(
        A=right_divide(W @ A),
        C=right_divide(C),
        Q=_symmetric(W @ Q @ W.T),
        R=R,
        pi1=W @ pi1,
        V1=_symmetric(W @ V1 @ W.T),
    )


@jax.jit
def canonical_scaling(params: LDSParams) -> LDSParams:
    """Normalise what neither the likelihood nor ‖A‖₁ can see: z → c S Π z.

    - c > 0 makes the mean of diag(Q) one; it cancels in A.
    - Π orders the states by decreasing signal-to-noise Q_ii (C'R⁻¹C)_ii, which depends neither on
      the sign and scale of a state nor on the units of the channels. Ties (up to rounding) go by
      decreasing A_ii, then stay as they are.
    - S makes the largest entry (in magnitude) of each column of C positive, or pi1_i if all are 0.

    A's entries are only moved and flipped, so zeros stay exact. A second call changes nothing.
    """
    A, C, Q, R, pi1, V1 = map(jnp.asarray, params)
    l, eps = A.shape[0], jnp.finfo(Q.dtype).eps

    mean = jnp.trace(Q) / l
    # Snapped to 1 within rounding: without it every further call would move the last digit.
    c = jnp.where(jnp.abs(mean - 1) <= 8 * l * eps, jnp.ones_like(mean), 1 / jnp.sqrt(mean))
    C, Q, pi1, V1 = C / c, Q * (c * c), pi1 * c, V1 * (c * c)

    # States that tie share a rank; without this, rounding would decide between equal states.
    signal = jnp.diagonal(Q) * jnp.sum(C * jnp.linalg.solve(R, C), axis=0)
    falling = jnp.argsort(-signal)
    s = signal[falling]
    distinct = s[:-1] - s[1:] > jnp.sqrt(eps) * s[:-1]
    rank = jnp.zeros(l, dtype=int).at[falling[1:]].set(jnp.cumsum(distinct))
    order = jnp.lexsort((-jnp.diagonal(A), rank))

    lead = jnp.take_along_axis(C, jnp.argmax(jnp.abs(C), axis=0)[None, :], axis=0)[0]
    sign = jnp.where(jnp.where(lead == 0, pi1, lead) < 0, -jnp.ones_like(lead), 1)[order]
    signs = sign[:, None] * sign[None, :]

    return LDSParams(
        A=_plain_zeros(A[order][:, order] * signs),
        C=_plain_zeros(C[:, order] * sign[None, :]),
        Q=_plain_zeros(Q[order][:, order] * signs),
        R=R,
        pi1=_plain_zeros(pi1[order] * sign),
        V1=_plain_zeros(V1[order][:, order] * signs),
    )


def check_params(
    params: LDSParams, n_channels: int | None = None, n_states: int | None = None
) -> LDSParams:
    """Validate on the host; return jax arrays of one floating dtype, covariances made symmetric.

    The dtype is that of the leaves, or JAX's default where they are integers.
    """
    arrays = _arrays(params._asdict(), "params")
    _check_shapes(arrays, "params", n_channels, n_states)
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
        arrays[name] = X = (X + X.T) / 2
        # Judged as a correlation matrix, so that states or channels may differ widely in scale.
        sd = np.sqrt(np.maximum(np.diagonal(X), 0.0))
        if not (sd > 0).all() or np.linalg.eigvalsh(X / sd[:, None] / sd)[0] <= len(X) * eps:
            smallest = np.linalg.eigvalsh(X)[0]
            raise ValueError(
                f"params.{name} is not positive definite in {dtype.name}: its smallest eigenvalue "
                f"is {smallest:.3g}; give a covariance of full rank, for example {name} + 1e-6 * I"
            )
    return LDSParams(**{name: jnp.asarray(X, dtype=dtype) for name, X in arrays.items()})


def save_params(path: str | os.PathLike, params: LDSParams) -> None:
    """Write `params` to a .npz file (keeps the dtype) or a .json file (readable, exact in doubles).

    The file appears whole or not at all: an interrupted write leaves an earlier file as it was.
    """
    path = Path(path)
    kind = _file_kind(path)
    arrays = _arrays(params._asdict(), "params")
    _check_shapes(arrays, "params")
    if kind == ".npz":
        buffer = io.BytesIO()
        np.savez(buffer, **arrays)
        content = buffer.getvalue()
    else:  # one line for each parameter
        lines = (f'"{name}": {json.dumps(X.tolist())}' for name, X in arrays.items())
        content = ("{\n" + ",\n".join(lines) + "\n}\n").encode()
    write_whole(path, content)


def load_params(path: str | os.PathLike) -> LDSParams:
    """Read what `save_params` wrote, as numpy arrays: the file's precision, whatever JAX's mode.

    Fields and shapes are checked here, covariances by `check_params`. Nothing is unpickled.
    """
    path = Path(path)
    kind = _file_kind(path)
    try:
        if kind == ".npz":
            with open(path, "rb") as raw, np.load(raw, allow_pickle=False) as file:
                found = {name: file[name] for name in file.files}
        else:
            found = dict(json.loads(path.read_text(encoding="utf-8")))
    except (ValueError, TypeError, EOFError, zipfile.BadZipFile) as error:
        raise ValueError(f"cannot read parameters from {path}: {error}") from error
    lacking = [name for name in LDSParams._fields if name not in found]
    if lacking:
        raise ValueError(
            f"{path} lacks {', '.join(lacking)} and holds {', '.join(found) or 'nothing'}; "
            f"parameters are {', '.join(LDSParams._fields)}"
        )
    arrays = _arrays({name: found[name] for name in LDSParams._fields}, str(path))
    _check_shapes(arrays, str(path))
    return LDSParams(**arrays)


def _file_kind(path: Path) -> str:
    if path.suffix.lower() not in (".npz", ".json"):
        raise ValueError(f"{path} has the suffix {path.suffix!r}; parameters go to .npz or .json")
    return path.suffix.lower()


def _symmetric(X):
    return (X + X.T) / 2


def _plain_zeros(X):
    """-0.0 → 0.0 (adding 0.0 would do, but a compiler may drop that)."""
    return jnp.where(X == 0, jnp.zeros_like(X), X)


def _arrays(fields: dict[str, Any], where: str) -> dict[str, Any]:
    """Host arrays of real floating dtype; integers become float64."""
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


def _check_shapes(arrays, where, n_channels=None, n_states=None) -> None:
    """Every shape must follow from l (given, or the rows of A) and d (given, or the rows of C)."""
    l = n_states if n_states is not None else (*arrays["A"].shape, 0)[0]
    d = n_channels if n_channels is not None else (*arrays["C"].shape, 0)[0]
    if l < 1 or d < 1:
        raise ValueError(
            f"{where} has A of shape {arrays['A'].shape} and C of shape {arrays['C'].shape}; "
            "at least one state and one channel are needed"
        )
    shapes = {"A": (l, l), "C": (d, l), "Q": (l, l), "R": (d, d), "pi1": (l,), "V1": (l, l)}
    for name, shape in shapes.items():
        if arrays[name].shape != shape:
            raise ValueError(
                f"{where}.{name} has shape {arrays[name].shape}; "
                f"with {l} states and {d} channels it must be {shape}"
            )
