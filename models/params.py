"""The parameters Ω = {A, C, Q, R, π1, V1} of a linear dynamical system, and B and D where it has inputs."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Real

from .linalg import sym


class _Parameters(NamedTuple):
    """The six parameters of a model without inputs."""

    A: Real[Any, "*n l l"]  # transition
    C: Real[Any, "*n d l"]  # emission
    Q: Real[Any, "*n l l"]  # covariance of the transition noise
    R: Real[Any, "*n d d"]  # covariance of the emission noise
    pi1: Real[Any, "*n l"]  # mean of the first state
    V1: Real[Any, "*n l l"]  # covariance of the first state


class LDSParams(_Parameters):
    """Parameters of an LDS with l states and d channels.

        z_1 ~ N(pi1, V1)
        z_t = A z_{t-1} + e_t,  e_t ~ N(0, Q)
        y_t = C z_t + v_t,      v_t ~ N(0, R)

    A pytree of jax or numpy arrays (lists become these), unchecked so that it passes through `jit` and `vmap`;
    `check_params` validates on the host. The dtype decides the precision of a computation.

    With B (l, p) and D (d, p) there are p inputs u_t, which are known: B u_t is added to z_t, the first one included,
    and D u_t to y_t. It is then a tuple of eight; without, B and D are None and it is one of six.
    """

    __slots__ = ()

    def __new__(cls, A, C, Q, R, pi1, V1, B=None, D=None):
        """Return a tuple of six, or of eight if B or D is given."""
        return _six_or_eight(A, C, Q, R, pi1, V1, B, D)

    # those of a named tuple know its own fields alone

    @classmethod
    def _make(cls, iterable):
        return cls(*iterable)

    def _asdict(self) -> dict[str, Any]:
        return dict(zip(self._fields, self, strict=True))

    def _replace(self, **changes: Any) -> "LDSParams":
        return _six_or_eight(**{**self._asdict(), **changes})

    def __repr__(self) -> str:
        return f"LDSParams({', '.join(f'{k}={v!r}' for k, v in self._asdict().items())})"

    @property
    def B(self) -> Any:
        """The matrix (l, p) from inputs to states, None without inputs."""
        return None

    @property
    def D(self) -> Any:
        """The matrix (d, p) from inputs to channels, None without inputs."""
        return None

    @property
    def eight(self) -> tuple[Any, ...]:
        """All of A, C, Q, R, pi1, V1, B and D; B and D are None without inputs."""
        return (*self[:6], self.B, self.D)

    @property
    def n_states(self) -> int:
        """The number l of states."""
        return self.A.shape[-1]

    @property
    def n_channels(self) -> int:
        """The number d of channels."""
        return self.C.shape[-2]

    @property
    def n_inputs(self) -> int:
        """The number p of inputs, 0 for a model without."""
        return next((x.shape[-1] for x in (self.B, self.D) if x is not None), 0)

    @property
    def dtype(self) -> Any:
        """The dtype of a computation with these parameters."""
        return jnp.result_type(*jax.tree.leaves(self))


def _six_or_eight(A, C, Q, R, pi1, V1, B=None, D=None) -> LDSParams:
    every = [_array(x) if type(x) is list else x for x in (A, C, Q, R, pi1, V1, B, D)]
    if B is None and D is None:
        return tuple.__new__(LDSParams, every[:6])
    return tuple.__new__(LDSParamsWithInputs, every)


def _array(x: list) -> Any:
    """Return a list of numbers, which would be a pytree without a shape, as an array; others are left to a check."""
    try:
        return np.array(x, float)
    except (TypeError, ValueError):
        return x


class LDSParamsWithInputs(LDSParams):
    """The eight parameters of a model with inputs: what LDSParams(..., B=..., D=...) makes."""

    __slots__ = ()
    _fields = (*_Parameters._fields, "B", "D")

    def __new__(cls, A, C, Q, R, pi1, V1, B, D):
        """Return a tuple of eight; jax puts placeholders in, so that B and D may be None here."""
        return tuple.__new__(cls, (A, C, Q, R, pi1, V1, B, D))

    @property
    def B(self) -> Any:
        """The matrix (l, p) from inputs to states."""
        return self[6]

    @property
    def D(self) -> Any:
        """The matrix (d, p) from inputs to channels."""
        return self[7]


def shapes_of(l: int, d: int, p: int = 0) -> dict[str, tuple[int, ...]]:
    """Return the shape of every parameter of a model with l states, d channels and p inputs."""
    shapes = {"A": (l, l), "C": (d, l), "Q": (l, l), "R": (d, d), "pi1": (l,), "V1": (l, l)}
    return shapes | ({"B": (l, p), "D": (d, p)} if p else {})


PARAMETERS = LDSParamsWithInputs._fields  # the names of all parameters that a model may have


def given(params: LDSParams) -> dict[str, Any]:
    """Return the parameters that a model has, by name: one of B and D may be left out."""
    return {name: x for name, x in params._asdict().items() if x is not None}


def with_inputs(params: LDSParams, p: int) -> LDSParams:
    """Return the parameters with B and D for p inputs, zeros where they are None; as they are if p is 0."""
    if not p:
        return params
    B = jnp.zeros((params.n_states, p), params.dtype) if params.B is None else params.B
    D = jnp.zeros((params.n_channels, p), params.dtype) if params.D is None else params.D
    return params._replace(B=B, D=D)


def check_params(
    params: LDSParams,
    n_channels: int | None = None,
    n_states: int | None = None,
    n_inputs: int | None = None,
) -> LDSParams:
    """Check parameters on the host and return jax arrays of one floating dtype, covariances made symmetric.

    The dtype is that of the leaves, or JAX's default where they are integers. One of B and D may be None where the
    other is given: it becomes 0.
    """
    arrays = host_arrays(given(params), "params")
    check_array_shapes(arrays, "params", n_channels, n_states, n_inputs)
    dtype = jnp.promote_types(jnp.result_type(*arrays.values(), float), jnp.float32)
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
    found = LDSParams(**{name: jnp.asarray(X, dtype=dtype) for name, X in arrays.items()})
    return with_inputs(found, found.n_inputs)


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


def check_array_shapes(arrays, where, n_channels=None, n_states=None, n_inputs=None) -> None:
    """Raise unless every shape follows from l (given, or the rows of A), d (the rows of C) and p (the columns of B)."""
    l = n_states if n_states is not None else (*arrays["A"].shape, 0)[0]
    d = n_channels if n_channels is not None else (*arrays["C"].shape, 0)[0]
    if l < 1 or d < 1:
        raise ValueError(
            f"{where} has A of shape {arrays['A'].shape} and C of shape {arrays['C'].shape}; "
            "at least one state and one channel are needed"
        )
    p = n_inputs if n_inputs is not None else _columns(arrays)
    shapes = shapes_of(l, d, p)
    for name, X in arrays.items():
        if name not in shapes:
            raise ValueError(f"{where}.{name} has shape {X.shape}, and there are no inputs")
        if X.shape != shapes[name]:
            inputs = f", {d} channels and {p} inputs" if p else f" and {d} channels"
            raise ValueError(
                f"{where}.{name} has shape {X.shape}; with {l} states{inputs} it must be {shapes[name]}"
            )


def _columns(arrays: dict[str, Any]) -> int:
    """Return the number p of inputs by the columns of B, or of D; 0 if neither is there."""
    found = next((arrays[name] for name in ("B", "D") if name in arrays), None)
    if found is None:
        return 0
    if found.ndim != 2 or found.shape[1] == 0:
        raise ValueError(
            f"B and D must be matrices with a column for each input; one is {found.shape}"
        )
    return found.shape[1]
