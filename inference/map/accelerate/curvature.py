"""The curvature that quasi-Newton steps have learned, carried from one fit of a path to the next.

Coordinates are set up anew at every fit, but so that the information of the complete data is near the identity
(coordinates.py): a coordinate means all but the same at a neighbouring β, and so does an inverse Hessian in it.
"""

from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Real
from scipy.linalg import LinAlgError, cho_factor, cho_solve

_LARGEST = 400  # coordinates up to which a full matrix is kept


class Curvature(NamedTuple):
    """An inverse Hessian, of coordinates that were free to move."""

    inverse: Real[np.ndarray, "n n"]  # 0 for the others
    free: np.ndarray  # (n,) which were
    settled: bool = False  # whether the steps that learned it ended at an optimum

    def among(self, free: np.ndarray) -> np.ndarray | None:
        """Return the inverse Hessian of other free coordinates; None if it is not positive definite or of other size.

        One that no longer moves is conditioned on, as in a Gaussian; one that did not move before has the identity.
        """
        if free.shape != self.free.shape:
            return None
        kept, gone = self.free & free, self.free & ~free
        try:
            H = self.inverse[np.ix_(kept, kept)]
            if gone.any():
                across = self.inverse[np.ix_(gone, kept)]
                H = H - across.T @ cho_solve(cho_factor(self.inverse[np.ix_(gone, gone)]), across)
            np.linalg.cholesky(H)
        except (LinAlgError, ValueError):
            return None
        found = np.eye(len(free))
        found[np.ix_(kept, kept)] = 0.5 * (H + H.T)
        return found[np.ix_(free, free)]


def learned(inverse: Any, free: np.ndarray) -> Curvature | None:
    """Return the curvature of a result of scipy: a matrix of the free coordinates, or an operator of all.

    None where there is nothing, as after steps that were cut short at once, or where it would be too large.
    """
    if inverse is None or len(free) > _LARGEST:
        return None
    if hasattr(inverse, "todense"):
        inverse = inverse.todense()[np.ix_(free, free)]
    found = np.zeros((len(free), len(free)))
    found[np.ix_(free, free)] = inverse
    return Curvature(found, free)
