"""The contract of a prior on the transition matrix A, which NUTS reads as a distribution and MAP-EM as a penalty.

`Prior` has the methods that NUTS calls. `Penalty` adds those that MAP-EM calls on the same object, so that what is
sampled and what is maximised can never disagree. The page docs/architecture.md shows how to write one.
"""

from collections.abc import Callable, Mapping
from dataclasses import MISSING, fields, is_dataclass
from typing import Any, ClassVar, Literal, NamedTuple

import jax
import numpy as np
import numpyro
from jax import Array
from jaxtyping import Real

Symmetry = Literal["none", "signs", "signed permutations"]
Blocks = Literal["entries", "rows", "columns", "matrix"]

_KINDS: dict[str, type["Prior"]] = {}  # classes of priors by name, for files


def _is_static(field: Any, value: Any) -> bool:
    """Tell whether a field is compiled in, and not an argument of compiled programs."""
    return field.metadata.get("static", False) or value is None or isinstance(value, str | bool)


def _flatten(prior: Any) -> tuple[tuple, tuple]:
    """Return the leaves of a prior as a pytree, and its static part."""
    named = [(field, getattr(prior, field.name)) for field in fields(prior)]
    static = tuple((f.name, x) for f, x in named if _is_static(f, x))
    moving = [(f.name, x) for f, x in named if not _is_static(f, x)]
    return tuple(x for _, x in moving), (tuple(name for name, _ in moving), static)


def _unflatten(cls: type, aux: tuple, leaves: Any) -> Any:
    """Rebuild a prior without `__post_init__`, which would refuse JAX's placeholders and stacks."""
    prior = object.__new__(cls)
    for name, value in (*zip(aux[0], leaves, strict=True), *aux[1]):
        object.__setattr__(prior, name, value)
    return prior


class Prior:
    """A prior on A, (l, l). A subclass is a frozen dataclass, and is registered as a pytree.

    Its fields are numbers and arrays, which a compiled program takes as arguments, and texts or switches, which are
    compiled in (as is every field with metadata {"static": True}).
    """

    is_proper: bool | Any = True  # whether the density integrates to a finite value
    site_dims: ClassVar[Mapping[str, tuple[str, ...]]] = {}  # dimensions of sites other than A
    symmetry: Symmetry | Any = "none"  # which relabellings of the states leave the density as it is

    def site(self, n_states: int) -> Array:
        """Sample A, or the sites that A is computed from, within a NumPyro model; return A, which is site `A`."""
        raise NotImplementedError(f"{type(self).__name__} does not define `site`")

    def start(self, A) -> dict[str, Any]:
        """Return values of the sampled sites at which A has the given value."""
        raise NotImplementedError(f"{type(self).__name__} does not define `start`")

    def log_prob(self, A) -> Array:
        """Return log p(A); a prior with sites of its own has no closed form, and raises."""
        raise NotImplementedError(f"{type(self).__name__} has no density of A in closed form")

    def distribution(self, n_states: int | None = None, fixed: np.ndarray | None = None) -> Any:
        """Return the NumPyro distribution of A, for a prior that is a single distribution."""
        raise NotImplementedError(f"{type(self).__name__} is not one distribution of A")

    def prior_of_B(self, n_states: int, n_inputs: int, intercept: int | None = None) -> Any:
        """Return the prior of B (l, p), for a prior that extends to inputs, as a NumPyro distribution; None if none.

        `intercept` is the input that is always 1, where there is one.
        """
        return None

    def center_of(self, n_states: int) -> np.ndarray:
        """Return the matrix, (l, l), that the prior pulls A to."""
        return np.zeros((n_states, n_states))

    def at_center(self, A) -> np.ndarray:
        """Tell which entries of A, (..., l, l), are exactly where the prior pulls them: its zeros, for most priors."""
        A = np.asarray(A)
        return A == self.center_of(A.shape[-1]).astype(A.dtype)

    def forced(self, n_states: int) -> np.ndarray:
        """Tell which entries of A, (l, l), the prior forces to be at its centre."""
        return np.zeros((n_states, n_states), bool)

    def fixed(self, n_states: int) -> np.ndarray:
        """Return the values of the forced entries of A, (l, l), NaN for the others."""
        return np.where(self.forced(n_states), self.center_of(n_states), np.nan)

    def curvature(self, n_states: int) -> np.ndarray | None:
        """Return the terms, (l, l), that kinks of -log p(A) add to the diagonal of a mass matrix.

        A kink has no second derivative; one over the variance of an entry takes its place. None means unknown: NUTS
        then adapts its mass matrix during warm-up.
        """
        return None

    def drawn_after(self, key: Any, A) -> dict[str, Array]:
        """Draw what the prior integrated out, given draws of A (..., l, l), by name; nothing for most priors."""
        return {}

    def density_at_center(self, n_states: int) -> np.ndarray:
        """Return the density of each entry of A at its centre, (l, l); NaN where it has none, or it is unknown."""
        return np.full((n_states, n_states), np.nan)

    def majorant(self, A) -> Any:
        """Return a prior with a convex penalty that touches this one's at A, and is nowhere below it but a constant."""
        return self

    def relabelled(self, sites: Mapping[str, np.ndarray], W: np.ndarray) -> dict[str, np.ndarray]:
        """Return sites other than A in the states Wz, for draws (n, ...) and signed permutations W (n, l, l)."""
        return {}

    def to_dict(self) -> dict[str, Any]:
        """Return the kind and the fields of this prior, for a JSON file."""
        found: dict[str, Any] = {"kind": type(self).__name__}
        for field in fields(self):  # type: ignore[arg-type]
            value = getattr(self, field.name)
            if isinstance(value, Prior):
                found[field.name] = value.to_dict()
                continue
            plain = value is None or isinstance(value, str | bool)
            found[field.name] = value if plain else np.asarray(value).tolist()
        return found

    @staticmethod
    def from_dict(found: Mapping[str, Any]) -> "Prior":
        """Return the prior that `to_dict` described; raise if its kind is unknown."""
        kind, known = found.get("kind"), {k: cls for k, cls in _KINDS.items() if is_dataclass(cls)}
        if kind not in known:
            raise ValueError(
                f"a prior of the kind {kind!r} is not known; known are {', '.join(sorted(known))}. If it is your own, "
                "import the file that defines it first"
            )
        cls = known[kind]
        wanted = {field.name for field in fields(cls)}  # type: ignore[arg-type]
        given = {name: value for name, value in found.items() if name != "kind"}
        odd = [k for k, v in given.items() if k not in wanted and getattr(cls, k, None) != v]
        needed = {f.name for f in fields(cls) if f.default is f.default_factory is MISSING}  # type: ignore[arg-type]
        if odd or needed - given.keys():
            raise ValueError(f"{kind} is described by {sorted(given)}; it has {sorted(wanted)}")
        return cls(**{k: _read(given[k]) for k in wanted & given.keys()})

    def __init_subclass__(cls, **options: Any):
        super().__init_subclass__(**options)
        known = _KINDS.get(cls.__name__)
        ours = __name__.rpartition(".")[0]
        if (
            known is not None
            and known.__module__.startswith(ours)
            and cls.__module__ != known.__module__
        ):
            raise TypeError(f"there is a prior named {cls.__name__} already; choose another name")
        _KINDS[cls.__name__] = cls
        jax.tree_util.register_pytree_node(cls, _flatten, lambda aux, x: _unflatten(cls, aux, x))


def _read(value: Any) -> Any:
    """Return a field of a prior from a JSON file: a list is an array, a mapping another prior."""
    if isinstance(value, Mapping):
        return Prior.from_dict(value)
    return np.array(value) if isinstance(value, list) else value


class Piece(NamedTuple):
    """A set of matrices A on which a penalty is smooth: bounds of each entry, and the penalty between them."""

    lower: Real[np.ndarray, "l l"]  # an entry that stays at zero has both bounds at zero
    upper: Real[np.ndarray, "l l"]
    evaluate: Callable[[np.ndarray], tuple[float, np.ndarray]]  # A -> value and gradient (l, l)


class Penalty(Prior):
    """A prior with p(A) ∝ exp(-value(A)), convex in A, with a proximal map.

    `value`, `prox` and `log_constant` are all that plain MAP-EM and NUTS need. The other methods serve more uses:
    `piece` quasi-Newton steps, `scaled` and `beta_max` a regularisation path, `sample` draws from the prior,
    `blocks` larger steps, `symmetry` and `curvature` alignment and NUTS.
    """

    is_flat: ClassVar[bool] = False  # whether the penalty is 0 for every A
    # the parts of A over which the penalty is a sum: `prox` takes a step for each
    blocks: Blocks | Any = "matrix"

    def value(self, A) -> Array:
        """Return the penalty of A, -log p(A) up to a constant."""
        raise NotImplementedError(f"{type(self).__name__} does not define `value`")

    def prox(self, A, step: Any = 1.0) -> Array:
        """Return argmin_X ½‖X - A‖²_F + step · value(X), zeros exact; `step` is a number, or one a block."""
        raise NotImplementedError(f"{type(self).__name__} does not define `prox`")

    def log_constant(self, n_states: int) -> Array:
        """Return the constant in log p(A) = log_constant - value(A)."""
        raise NotImplementedError(f"{type(self).__name__} does not define `log_constant`")

    def log_prob(self, A) -> Array:
        """Return log p(A)."""
        return self.log_constant(np.shape(A)[-1]) - self.value(A)

    def penalised(self, n_states: int) -> np.ndarray:
        """Tell which entries of A, (l, l), the penalty pulls to zero; the others are free."""
        return np.full((n_states, n_states), not self.is_flat)

    def piece(self, A: np.ndarray, pull: np.ndarray) -> Piece:
        """Return the smooth piece of the penalty around A; the sign of `pull` (l, l) is the side of a zero entry."""
        raise NotImplementedError(
            f"{type(self).__name__} has no `piece`, which quasi-Newton steps need: define it, or give accelerate=False"
        )

    def scaled(self, factor: float) -> "Penalty":
        """Return the prior whose penalty is `factor` times this one's."""
        raise NotImplementedError(f"{type(self).__name__} has no `scaled`, which a path needs")

    def beta_max(self, gradient: Array) -> Array:
        """Return the least factor at which `scaled(factor)` keeps A at its centre M where ∇g(M) = gradient (l, l)."""
        raise NotImplementedError(
            f"{type(self).__name__} has no `beta_max`, which a path needs: define it, or give betas"
        )

    def beta_max_of_B(self, gradient: np.ndarray, intercept: int | None = None) -> float:
        """Return the least factor at which `scaled(factor)` keeps B at 0, but for an intercept's column."""
        raise NotImplementedError(
            f"{type(self).__name__} has no `beta_max_of_B`, which a path over B needs: define it, or give betas"
        )

    def expanded(self, n_states: int, dtype: Any) -> "Penalty":
        """Return the same penalty with fields of full size: one compiled program for numbers and arrays."""
        return self

    def sample(
        self, key: Any, n_states: int | None = None, sample_shape: tuple[int, ...] = ()
    ) -> Array:
        """Draw A from the prior, sample_shape + (l, l)."""
        raise NotImplementedError(f"{type(self).__name__} has no `sample`: it cannot be drawn from")

    def distribution(self, n_states: int | None = None, fixed: np.ndarray | None = None) -> Any:
        """Return the NumPyro distribution of A; under jit `fixed` (l, l) has the forced entries, NaN elsewhere."""
        from .distribution import PriorDistribution

        if n_states is None:
            raise ValueError("n_states is None; give it, as the prior alone has no size")
        return PriorDistribution(self, n_states, fixed)

    def site(self, n_states: int) -> Array:
        """Sample the site `A` of a NumPyro model."""
        A: Any = numpyro.sample("A", self.distribution(n_states))
        return A

    def start(self, A) -> dict[str, Any]:
        """Return A as the value of site `A`, the only one."""
        return {"A": A}


def as_penalty(prior: Any, n_states: int | None = None) -> Penalty:
    """Return `prior` if it is a penalty, which MAP-EM can maximise; else raise an error that names some.

    With `n_states` the shapes of what it returns are checked too: a user's own prior may be wrong in them.
    """
    if isinstance(prior, Penalty):
        if n_states is not None:
            _check_shapes(prior, n_states)
        return prior
    if isinstance(prior, Prior):
        raise TypeError(
            f"prior is {prior!r}, which only NUTS can read; for a MAP fit give Flat(), Laplace(beta) or "
            "GroupLaplace(beta, by), and this one to sample_posterior"
        )
    raise TypeError(
        f"prior is {prior!r}; give Flat(), Laplace(beta), GroupLaplace(beta, by) or a Penalty of your own"
    )


def _check_shapes(prior: Penalty, n_states: int) -> None:
    name = type(prior).__name__
    if not is_dataclass(prior):
        raise TypeError(f"{name} is not a dataclass: write @dataclass(frozen=True) above it")
    if type(prior).__module__.startswith(__name__.rpartition(".")[0]):
        return  # one of ours
    A = np.zeros((n_states, n_states))
    for method, shape in (("value", ()), ("prox", A.shape), ("log_constant", ())):
        argument = n_states if method == "log_constant" else A
        found = np.shape(getattr(prior, method)(argument))
        if found != shape:
            raise ValueError(f"{name}.{method} returns shape {found}; it must be {shape}")
