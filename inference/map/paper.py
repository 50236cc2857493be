"""The paper's algorithm to the letter: EM whose M-step is Algorithm 1. To be read beside the paper's appendix.

Where the paper is silent or in error, this file does the following:
- the paper is written for one sequence: T - 1 is Σ(T_n - 1), T is Σ T_n, and π1 and V1 are means over the N sequences;
- line 6 has t where α is meant;
- Q and R are made symmetric, and kept above a floor where they lose definiteness, since EM could not go on: with a
  penalised A the formula of Q does not give a covariance, and the objective may fall. The exact M-step (mstep.py),
  which `fit_map` uses by default, has neither fault.
"""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from ...models import ExpectedStatistics, LDSParams, NumericalBreakdown, Penalty
from ..constraints import Constraints
from ..proximal import proximal_gradient, quadratic, theorem1_step
from ..result import FitResult, Stop
from .checks import bad_start, warnings_of_floors
from .input_mstep import right_divide
from .loop import Tell, normalised
from .mstep import Floors, stationarity
from .program import Problem


def algorithm1(
    s: ExpectedStatistics,
    params: LDSParams,
    prior: Penalty,
    floors: Floors,
    constraints: Constraints,
) -> LDSParams:
    """Return Ω after one M-step: Algorithm 1, its lines numbered as in the paper.

    S11 = Σ_{t≥2} M_t, S10 = Σ M_{t,t-1}, S00 = Σ_{t≥2} M_{t-1}, Szz = Σ M_t, Syz = Σ y_t ẑ_t', Syy = Σ y_t y_t'.
    """
    A, C, Q, R, pi1, V1 = params
    free = constraints.free

    def covariance(name, now, total, n):
        return constraints.covariance(name, params).m_step(now, total, n, getattr(floors, name))

    # line 1: update Ω \ A, with Q from the previous A
    if free("C"):  # C = (Σ y_t ẑ_t') (Σ M_t)⁻¹
        C = right_divide(s.Syz, s.Szz)
    if free("Q"):  # Q = 1/(T-1) (Σ M_t - A Σ M_{t-1,t})
        Q = covariance("Q", Q, s.S11 - A @ s.S10.T, s.n_transitions)
    if free("R"):  # R = 1/T Σ (y_t y_t' - C ẑ_t y_t')
        R = covariance("R", R, s.Syy - C @ s.Syz.T, s.n_emissions)
    mean = s.z1 / s.n_sequences
    if free("pi1"):  # π1 = ẑ_1
        pi1 = mean
    if free("V1"):  # V1 = M_1 - ẑ_1 ẑ_1'
        spread = s.M1 - s.n_sequences * jnp.outer(mean, mean)
        V1 = covariance("V1", V1, spread, s.n_sequences)
    if free("A"):
        A = right_divide(s.S10, s.S00)  # line 2: A = (Σ M_{t,t-1}) (Σ M_{t-1})⁻¹
        g = quadratic(Q, s.S00, s.S10)
        alpha = theorem1_step(g)  # line 4: α = 1 / (‖Q⁻¹‖_F ‖Σ M_{t-1}‖_F), the same in every round
        # lines 3 to 7, until convergence: ∇g(A) = Q⁻¹ (A Σ M_{t-1} - Σ M_{t,t-1}), A = S_{βα}(A - α ∇g(A))
        A = proximal_gradient(g, prior, A, alpha).A
    return LDSParams(A, C, Q, R, pi1, V1)


@partial(jax.jit, static_argnames="constraints")
def iteration(
    params: LDSParams, stats: ExpectedStatistics, problem: Problem, constraints: Constraints
) -> tuple[LDSParams, ExpectedStatistics, Array, Array]:
    """Take one M-step and one E-step: return the new Ω, its sums and objective, and the residual of the old Ω."""
    data, prior, _, floors = problem
    new = algorithm1(stats, params, prior, floors, constraints)
    residual = stationarity(stats, params, prior, new, constraints)
    stats = data.expected_statistics(new)
    return new, stats, stats.log_likelihood + prior.log_prob(new.A), residual


def fit_paper(
    params: LDSParams,
    problem: Problem,
    prior: Penalty,
    constraints: Constraints,
    max_iter: int,
    tol: float,
    tell: Tell,
    channels: tuple[str, ...] = (),
) -> FitResult:
    """Alternate E-steps and Algorithm 1 until the optimality conditions hold to `tol`."""
    if constraints.Q != "free":
        raise ValueError(
            f"Q is {constraints.Q!r}, which Algorithm 1 does not know; give variant='exact'"
        )
    if constraints.own_levels or problem.priors.terms:
        raise ValueError(
            "Algorithm 1 knows neither levels of the sequences' own nor priors of other parameters than A; give "
            "variant='exact'"
        )
    if params.n_inputs:
        raise ValueError("Algorithm 1 knows no inputs; give variant='exact'")
    e_step = jax.jit(lambda params, data: data.expected_statistics(params))
    stats, residual = e_step(params, problem.data), np.inf
    if not np.isfinite(float(stats.log_likelihood)):
        raise NumericalBreakdown(bad_start(params))
    objective, reason = [], Stop.MAX_ITER
    try:
        while len(objective) < max_iter:
            found = iteration(params, stats, problem, constraints)
            if not np.isfinite(float(found[2])):  # the parameters before are kept
                reason = Stop.NOT_FINITE
                break
            params, stats, value, residual = found
            objective.append(float(value))
            tell(1, objective[-1], float(residual))
            if residual <= tol:
                reason = Stop.TOLERANCE
                break
    except KeyboardInterrupt:
        reason = Stop.INTERRUPTED
    params = constraints.regular(params)
    stats = e_step(params, problem.data)  # at what is returned
    value = float(stats.log_likelihood + problem.prior.log_prob(params.A))
    noticed = warnings_of_floors(params, problem.floors, constraints, channels)
    params = normalised(params, prior, constraints)
    return FitResult(
        params=params,
        objective=np.append(objective[:-1], value),
        stop=reason,
        reason=reason.text(residual=float(residual), tol=tol, max_iter=max_iter),
        kkt_residual=float(residual),
        log_likelihood=float(stats.log_likelihood),
        prior=prior,
        constraints=constraints,
        steps={"em": len(objective), "quasi-newton": 0, "basis": 0},
        warnings=noticed,
        restarts=np.zeros(0),
    )
