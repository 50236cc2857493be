"""The sums that EM needs: expected sufficient statistics of a cohort, and the score that follows from them."""

from typing import Any, NamedTuple

import jax
import numpy as np
from jaxtyping import Real

from ..linalg import definite, sym
from ..params import LDSParams


class InputStatistics(NamedTuple):
    """Sums over sequences and steps with the inputs u_t of a model that has any, weighted by w_n."""

    u1: Real[Any, " p"]  # Σ u_1
    U11: Real[Any, "p p"]  # Σ u_1 u_1'
    Suu: Real[Any, "p p"]  # Σ u_t u_t'
    z1u: Real[Any, "l p"]  # Σ E[z_1] u_1'
    S0u: Real[Any, "l p"]  # Σ_{t>=2} E[z_{t-1}] u_t'
    Szu: Real[Any, "l p"]  # Σ E[z_t] u_t'
    Syu: Real[Any, "d p"]  # Σ E[y_t] u_t'


class InputMoments(NamedTuple):
    """Those of `InputStatistics` that change with the parameters, of data without gaps."""

    z1u: Real[Any, "l p"]
    S0u: Real[Any, "l p"]
    Szu: Real[Any, "l p"]


class DataSums(NamedTuple):
    """Sums of y and u alone: those of data without gaps are the same whatever the parameters are."""

    Syy: Real[Any, "d d"]  # Σ y_t y_t'
    u1: Real[Any, " p"] | None = None
    U11: Real[Any, "p p"] | None = None
    Suu: Real[Any, "p p"] | None = None
    Syu: Real[Any, "d p"] | None = None


def data_sums(y: Any, weights: Any, unit: Any, u: Any = None) -> DataSums:
    """Return the sums of y (T, d, N) and of the inputs u (T, p, M) of the first M sequences, in numpy or jax."""
    Syy = sym((y * weights @ y.swapaxes(1, 2)).sum(0))
    if u is None:
        return DataSums(Syy)
    M = u.shape[2]
    uw = u * weights[:M]
    return DataSums(
        Syy,
        u1=uw[0] @ unit[:M],
        U11=uw[0] @ u[0].T,
        Suu=sym((uw @ u.swapaxes(1, 2)).sum(0)),
        Syu=(y[..., :M] @ uw.swapaxes(1, 2)).sum(0),
    )


def with_inputs(sums: DataSums, moments: InputMoments) -> InputStatistics:
    """Return the sums with inputs, from those of the data and those of the states."""
    fixed: dict[str, Any] = sums._asdict()
    del fixed["Syy"]
    return InputStatistics(**fixed, **moments._asdict())


class ExpectedStatistics(NamedTuple):
    """Sums over sequences n and steps t of posterior moments, M_t = E[z_t z_t' | y], weighted by w_n.

    The paper's Σ_{t>=2} M_t is S11, Σ M_{t,t-1} is S10, Σ_{t>=2} M_{t-1} is S00. Missing cells enter by their
    conditional moments given the observed ones. At a step without any observed cell y_t is C z_t + D u_t, without
    noise, and the step is not counted in n_emissions. For R this is as if the step were not there. C meets points that
    lie on C: its M-step is shorter, and the objective still never falls, since they add -½ |C_old z - C z|², in units
    of R, to what EM maximises, which is 0 at C_old and nowhere above.
    """

    n_sequences: Real[Any, ""]  # Σ w_n
    n_transitions: Real[Any, ""]  # Σ w_n (T_n - 1)
    n_emissions: Real[Any, ""]  # Σ w_n (steps with an observed cell)
    z1: Real[Any, " l"]  # Σ E[z_1]
    M1: Real[Any, "l l"]  # Σ M_1
    S00: Real[Any, "l l"]
    S10: Real[Any, "l l"]
    S11: Real[Any, "l l"]
    Szz: Real[Any, "l l"]  # Σ M_t
    Syz: Real[Any, "d l"]  # Σ E[y_t z_t']
    Syy: Real[Any, "d d"]  # Σ E[y_t y_t']
    log_likelihood: Real[Any, ""]  # Σ w_n log p(y_n)
    inputs: InputStatistics | None = None


class StateMoments(NamedTuple):
    """Sums of the moments of the states alone, weighted by w_n, and how many terms they have."""

    n: tuple[Any, Any, Any]  # Σ w_n, Σ w_n (T_n - 1), Σ w_n (steps with an observed cell)
    z1: Real[Any, " l"]  # Σ E[z_1]
    M1: Real[Any, "l l"]  # Σ M_1
    Szz: Real[Any, "l l"]  # Σ M_t
    last: Real[Any, "l l"]  # Σ M_t at the last step of each sequence


def statistics_of_score(
    params: LDSParams, grads: LDSParams, states: StateMoments, log_likelihood: Any
) -> ExpectedStatistics:
    """Return all sums from the moments of the states and the score, by Fisher's identity.

    Σ E[e_t z_{t-1}'] = Q g_A, so S10 follows from S00; likewise, with Σ E[v_t v_t'] = n R + 2 R g_R R, the moments
    of y_t = C z_t + v_t from Szz. Missing cells need no care here: the score has taken their conditional
    moments into account, and a step without an observed cell adds nothing to it. M1 is not computed in this way:
    2 V1 g_V1 V1 multiplies rounding by V1².
    """
    A, C, Q, R, *_ = params
    (n_sequences, n_transitions, n_emissions), z1, M1, Szz, last = states
    S00 = Szz - last
    ez, vz = Q @ grads.A, R @ grads.C  # Σ E[e_t z_{t-1}'], Σ E[v_t z_t']
    vv = n_emissions * R + 2 * R @ grads.R @ R
    return ExpectedStatistics(
        n_sequences=n_sequences,
        n_transitions=n_transitions,
        n_emissions=n_emissions,
        z1=z1,
        M1=sym(M1),
        S00=sym(S00),
        S10=A @ S00 + ez,
        S11=sym(Szz - M1),
        Szz=sym(Szz),
        Syz=C @ Szz + vz,
        Syy=sym(C @ Szz @ C.T + vz @ C.T + C @ vz.T + vv),
        log_likelihood=log_likelihood,
    )


def fisher_score(params: LDSParams, stats: ExpectedStatistics) -> LDSParams:
    """Return the gradient of the log-likelihood at `params`, where `stats` were taken (Fisher's identity), in numpy."""
    A, C, Q, R, pi1, V1, B, D = _host(params).eight
    Q = definite(Q)  # states without noise have no score of their own
    s = _host(stats)
    u = s.inputs

    def by(S, total, n):  # ½ S⁻¹ (total - n S) S⁻¹
        return 0.5 * np.linalg.solve(S, np.linalg.solve(S, (total + total.T) / 2 - n * S).T)

    first = s.M1 + s.n_sequences * np.outer(pi1, pi1) - 2 * np.outer(s.z1, pi1)
    moved = s.S11 - 2 * s.S10 @ A.T + A @ s.S00 @ A.T
    seen = s.Syy - 2 * s.Syz @ C.T + C @ s.Szz @ C.T
    e1, ez, vz = s.z1 - s.n_sequences * pi1, s.S10 - A @ s.S00, s.Syz - C @ s.Szz
    inputs = {}
    if u is not None:
        # Σ (z_1 - π1) u_1', Σ (z_t - A z_{t-1}) u_t' and Σ (y_t - C z_t) u_t'; then less the part of B or D
        e1u, eu, vu = u.z1u - np.outer(pi1, u.u1), u.Szu - u.z1u - A @ u.S0u, u.Syu - C @ u.Szu
        first = first - 2 * e1u @ B.T + B @ u.U11 @ B.T
        moved = moved - 2 * eu @ B.T + B @ (u.Suu - u.U11) @ B.T
        seen = seen - 2 * vu @ D.T + D @ u.Suu @ D.T
        e1, ez, vz = e1 - B @ u.u1, ez - B @ u.S0u.T, vz - D @ u.Szu.T
        by_B = np.linalg.solve(V1, e1u - B @ u.U11) + np.linalg.solve(Q, eu - B @ (u.Suu - u.U11))
        inputs = {"B": by_B, "D": np.linalg.solve(R, vu - D @ u.Suu)}
    return LDSParams(
        A=np.linalg.solve(Q, ez),
        C=np.linalg.solve(R, vz),
        Q=by(Q, moved, s.n_transitions),
        R=by(R, seen, s.n_emissions),
        pi1=np.linalg.solve(V1, e1),
        V1=by(V1, first, s.n_sequences),
        **inputs,
    )


def _host(x: Any) -> Any:
    """Return a pytree with its arrays on the host, in 64 bits."""
    return jax.tree.map(lambda leaf: np.asarray(leaf, float), x)
