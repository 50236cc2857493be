"""What is done to a fit before it is returned, and which changes of basis its constraints allow."""

import jax.numpy as jnp
import numpy as np

from ...models import LDSParams, Prior, canonical_scaling
from ...models.kalman.linalg import least_correlation
from .mstep import Floors, Spec


def basis_is_free(spec: Spec) -> bool:
    """Whether z → Wz changes nothing that is held."""
    return not (spec.diagonal or spec.unit_Q or set(spec.hold) & {"A", "C", "Q", "pi1", "V1"})


def rotates(params: LDSParams, spec: Spec) -> bool:
    """Whether Q = I alone is held: every orthogonal W keeps it."""
    identity = np.array_equal(params.Q, np.eye(params.n_states))
    return spec.hold == ("Q",) and not spec.diagonal and identity


def regular(params: LDSParams, spec: Spec) -> LDSParams:
    """Free covariances clear of singular, so that a fit can start where another ended.

    Floors are set at the start of a fit: a V1 that grows a millionfold in one direction outgrows its floor in others.
    """

    def clear(S):
        if not least_correlation(S) < 1e-10:
            return S
        return jnp.asarray(S + 1e-10 * np.diag(np.diagonal(S)), S.dtype)

    free = [name for name in Floors._fields if spec.free(name)]
    if spec.unit_Q and "Q" in free:
        free.remove("Q")
    return params._replace(**{name: clear(getattr(params, name)) for name in free})


def normalised(params: LDSParams, prior: Prior, spec: Spec) -> LDSParams:
    """What changes neither likelihood nor penalty: overall scale, signs and order of the states; and signs of zeros."""
    if (basis_is_free(spec) or rotates(params, spec)) and np.ndim(prior.beta) == 0:
        params = canonical_scaling(params)
    host = {name: np.asarray(x) for name, x in params._asdict().items()}
    host["A"] = np.where(host["A"] == 0, host["A"].dtype.type(0), host["A"])
    for name in Floors._fields:  # exact symmetry: fused arithmetic may differ in the last bit
        host[name] = (host[name] + host[name].T) / 2
    return LDSParams(**{name: jnp.asarray(x) for name, x in host.items()})
