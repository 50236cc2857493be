"""Errors that name the matrix, step and sequence at which a computation broke down, instead of silent NaN."""

from typing import TypeVar

import jax
import numpy as np
from numpyro.util import not_jax_tracer

from ..cohort import Cohort
from ..params import LDSParams, given

Out = TypeVar("Out")


class NumericalBreakdown(FloatingPointError):
    """The error where a matrix lost its positive definiteness or a value overflowed; its message says which."""


def explain_breakdown(result: Out, params: LDSParams, cohort: Cohort) -> Out:
    """Return the result if it is finite or still being traced; else raise an error that names matrix and step.

    Inside jit, grad or vmap nothing can be raised: there a breakdown shows as NaN, and calling the same
    function outside of them tells the cause.
    """
    leaves = jax.tree.leaves((result, params, cohort))
    if not all(not_jax_tracer(x) for x in leaves):
        return result
    if all(np.isfinite(np.asarray(x)).all() for x in jax.tree.leaves(result)):
        return result
    raise NumericalBreakdown(find_breakdown(params, cohort))


def find_breakdown(params: LDSParams, cohort: Cohort) -> str:
    """Describe the first matrix that fails in a filter run on the host, in the precision of the parameters."""
    Ω = jax.tree.map(np.asarray, params)
    for name, x in given(Ω).items():
        if not np.isfinite(x).all():
            return f"params.{name} holds a value that is not finite"
    for name in ("Q", "R", "V1"):
        values = np.linalg.eigvalsh(getattr(Ω, name))
        if values[0] < -len(values) * np.finfo(values.dtype).eps * np.abs(values).max():
            return f"params.{name} is not positive semi-definite: its smallest eigenvalue is {values[0]:.3g}"
    sequences = range(cohort.n_sequences)
    with np.errstate(all="ignore"):
        for strict, n in [(False, n) for n in sequences] + [(True, n) for n in sequences]:
            u = None if cohort.u is None else np.asarray(cohort.u[n])
            found = _follow(Ω, np.asarray(cohort.y[n]), np.asarray(cohort.mask[n]), strict, u)
            if found:
                t, what = found
                return (
                    f"{what} at step {t} of sequence {cohort.ids[n]!r} ({Ω.A.dtype} arithmetic). "
                    "Use 64-bit precision, or a larger R or Q."
                )
    return "the result is not finite, but the filter is: rounding, in a later step"


def _follow(
    Ω: LDSParams, y: np.ndarray, mask: np.ndarray, strict: bool, u: np.ndarray | None = None
) -> tuple[int, str] | None:
    """Return the first step that fails, and how; if strict, the predicted P must be definite too.

    A filter can pass through a P that is not definite; a smoother, which inverts P, cannot.
    """
    m, P = Ω.pi1, Ω.V1
    if u is not None:
        y, moves = y - u @ Ω.D.T, u @ Ω.B.T
    else:
        moves = np.zeros((len(y), len(m)))
    for t in range(len(y) + 1):
        m = m + moves[t] if t < len(y) else m
        if not (np.isfinite(P).all() and np.isfinite(m).all()):
            return t, "the predicted state overflowed (is A unstable?)"
        if t == len(y):
            return None
        smallest = np.linalg.eigvalsh(P).min() if strict and t else 1.0
        if smallest <= 0:
            return t, (
                "the predicted covariance P = A P A' + Q is not positive definite "
                f"(smallest eigenvalue {smallest:.3g})"
            )
        o = mask[t]
        C = Ω.C[o]
        S = C @ P @ C.T + Ω.R[np.ix_(o, o)]
        try:
            np.linalg.cholesky(S)
        except np.linalg.LinAlgError:
            smallest = np.linalg.eigvalsh(S).min()
            return t, (
                "the innovation covariance S = C P C' + R is not positive definite "
                f"(smallest eigenvalue {smallest:.3g})"
            )
        K = np.linalg.solve(S, C @ P).T
        F = np.eye(len(P), dtype=P.dtype) - K @ C
        m = Ω.A @ (m + K @ (y[t, o].astype(m.dtype) - C @ m))
        P = Ω.A @ (F @ P @ F.T + K @ Ω.R[np.ix_(o, o)] @ K.T) @ Ω.A.T + Ω.Q
        P = (P + P.T) / 2
