# %% [markdown]
# # 2. Sparse MAP-EM: the paper's algorithm
#
# **You will learn** how a Laplace prior on $A$ becomes a soft threshold, how fast proximal gradient converges (Theorem 1 of
# Liu and Hauskrecht, 2013, as a plot), how EM uses it to learn an LDS with exact zeros, how $\beta$ trades fit for
# sparsity, and why the algorithm to the letter of the paper can *lower* its own objective.

# %%
import jax
import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np

jax.config.update("jax_enable_x64", True)
from sparse_lds.inference import fit_em, fit_map, regularization_path, relaxed_fit
from sparse_lds.inference.proximal import prox_step, quadratic, solve, theorem1_step, tight_step
from sparse_lds.models import Laplace, LDSParams, expected_statistics, simulate

np.set_printoptions(precision=3, suppress=True)

# %% [markdown]
# ## A cohort
#
# Forty patients, 25 steps, four states. Each state remembers itself, two of them drive another one: 6 of 16 entries of $A$ are not zero.
# $C$ is held at the identity in this notebook, so that an entry of $A$ means something (notebook 4 says why that matters).

# %%
A = np.array([[0.9, 0, 0, 0], [0.4, 0.6, 0, 0], [0, 0, 0.8, 0], [0, 0, -0.4, 0.5]])
truth = LDSParams(A, np.eye(4), 0.2 * np.eye(4), 0.2 * np.eye(4), np.zeros(4), np.eye(4))
cohort = simulate(jax.random.key(0), truth, lengths=[25] * 40).cohort
print(cohort)

# %% [markdown]
# ## The prior, read as a penalty
#
# SLDS puts an independent Laplace prior on every entry, $p(A_{ij}) \propto e^{-\beta |A_{ij}|}$. Its negative logarithm is the penalty
# $\beta \lVert A \rVert_1$, and the proximal map of that is the soft threshold: move towards zero by $\beta$ times the step, and stop *at* zero.

# %%
x = np.linspace(-1, 1, 401)
grid = jnp.asarray(np.tile(x, (401, 1)))
figure, axis = plt.subplots(figsize=(4.6, 3.2), layout="constrained")
axis.plot(x, x, color="0.7", lw=1, label="β = 0 (OLDS)")
for beta in (0.2, 0.5):
    axis.plot(x, Laplace(beta).prox(grid, 1.0)[0], label=f"β = {beta}")
axis.set(
    xlabel="entry before",
    ylabel="entry after",
    xticks=np.arange(-1, 1.1, 0.5),
    title="Soft threshold: where exact zeros come from",
)
_ = axis.legend(frameon=False, fontsize=8)
# %% [markdown]
# ## The M-step for A
#
# Given the E-step's sums $S_{00} = \sum E[z_{t-1} z_{t-1}']$ and $S_{10} = \sum E[z_t z_{t-1}']$, the M-step minimises
#
# $$g(A) + \beta \lVert A \rVert_1, \qquad \nabla g(A) = Q^{-1}(A S_{00} - S_{10}).$$
#
# Proximal gradient repeats $A \leftarrow \mathrm{prox}(A - \alpha \nabla g(A))$. Theorem 1: with $\alpha = 1 / (\lVert Q^{-1} \rVert_F \lVert S_{00} \rVert_F)$ the gap after $k$ steps is
# at most $\lVert A_0 - A^* \rVert_F^2 / (2 \alpha k)$. The bound holds (it must), and it is far from what is seen: where $S_{00}$ is well conditioned the gap falls geometrically. Spectral norms in
# place of Frobenius norms allow a longer step, and momentum (Nesterov; FISTA) makes the guarantee $O(1/k^2)$: faster at first, and in the end it overshoots and swings, where plain steps go straight. The package's solver has both, and a scale for each state.

# %%
s = expected_statistics(truth, cohort)
g = quadratic(jnp.asarray(truth.Q), s.S00, s.S10)
prior, start = Laplace(40.0), jnp.eye(4)
best = solve(g, prior, start, tol=1e-12).A
objective = lambda A: float(g.value(A) + prior.value(A))  # noqa: E731
step = jax.jit(prox_step)


def gaps(alpha, momentum=False, n=200):
    A, ahead, found = start, start, []
    for k in range(1, n + 1):
        before, A = A, step(g, prior, ahead, alpha)
        ahead = A + (k - 1) / (k + 2) * (A - before) if momentum else A
        found.append(objective(A) - objective(best))
    return np.maximum(found, 1e-12)


k = np.arange(1, 201)
alpha = theorem1_step(g)
figure, axis = plt.subplots(figsize=(6, 3.6), layout="constrained")
bound = float(((start - best) ** 2).sum() / (2 * alpha)) / k
axis.loglog(k, bound, "k--", lw=1, label="Theorem 1's bound")
axis.loglog(k, gaps(alpha), label="Theorem 1's step (Frobenius norms)")
axis.loglog(k, gaps(tight_step(g)), label="spectral norms")
axis.loglog(k, gaps(tight_step(g), momentum=True), lw=1, label="spectral norms, momentum")
axis.set(
    xlabel="iteration k",
    ylabel="gap to the optimum",
    ylim=(1e-9, None),
    title="Rate of proximal gradient in the M-step",
)
axis.legend(frameon=False, fontsize=8)
print(
    "iterations of the default solver to a relative residual of 1e-8:",
    int(solve(g, prior, start, tol=1e-8).n_iter),
)
assert (gaps(alpha) <= bound * (1 + 1e-9)).all()

# %% [markdown]
# ## EM, ordinary and sparse
#
# E-step: Kalman smoothing of every patient. M-step: the above for $A$, closed forms for the rest. `fit_em` has no prior on $A$ (OLDS), `fit_map` has one (SLDS).
# Zeros are exact: they are written as `0.`, not as something small. `relaxed_fit` keeps the zeros and takes the shrinkage back.

# %%
options = dict(init=truth, hold=("C",))
olds = fit_em(cohort, 4, **options)
slds = fit_map(cohort, 4, Laplace(30.0), **options)
relaxed = relaxed_fit(cohort, slds)
for name, fit in (("OLDS", olds), ("SLDS", slds), ("relaxed", relaxed)):
    print(f"{name}: {fit.reason}\n{np.asarray(fit.params.A)}\n")
print(
    "error against the truth, Frobenius:",
    {
        n: round(float(np.linalg.norm(f.params.A - A)), 3)
        for n, f in (("OLDS", olds), ("SLDS", slds), ("relaxed", relaxed))
    },
)

# %% [markdown]
# ## The path of β
#
# From a small β to one at which nothing is left. Entries leave one after another; those that are truly zero leave first. With $Q$ free the
# path may jump: once a link is gone, the noise takes over what it explained.

# %%
path = regularization_path(cohort, 4, betas=np.geomspace(3, 1500, 16), **options)
figure, axis = plt.subplots(figsize=(6.5, 3.8), layout="constrained")
for (i, j), true in np.ndenumerate(A):
    axis.semilogx(
        path.betas,
        path.A[:, i, j],
        color="C0" if true else "0.6",
        lw=1.8 if true else 1,
        zorder=3 if true else 2,
    )
axis.plot([], [], color="C0", label="truly not zero")
axis.plot([], [], color="0.6", label="truly zero")
axis.set(xlabel="β", ylabel="entries of A", title="The path of the MAP")
axis.legend(frameon=False, fontsize=8)
print(
    path.table()[["beta", "log_likelihood", "nonzero", "converged"]].round(1).to_string(index=False)
)

# %% [markdown]
# ## Why the letter of Algorithm 1 can lower the objective
#
# The algorithm box takes $Q = (S_{11} - A S_{10}') / (T - 1)$. That is the M-step of $Q$ only where $A$ is the least-squares one: there,
# $A S_{00} A' = A S_{10}'$ and two terms cancel. With a *penalised* $A$ they do not; the formula is then not even symmetric, and the penalised likelihood may fall.
# The form that is right for every $A$ is
#
# $$Q = (S_{11} - A S_{10}' - S_{10} A' + A S_{00} A') / \textstyle\sum (T_n - 1).$$
#
# `variant="paper"` is the letter, `variant="exact"` (the default) the form above, which never falls.

# %%
short = simulate(jax.random.key(3), truth, lengths=[6] * 12).cohort
figure, axis = plt.subplots(figsize=(6, 3.4), layout="constrained")
for variant, color in (("paper", "C1"), ("exact", "C0")):
    fit = fit_map(
        short,
        4,
        Laplace(12.0),
        init=truth,
        hold=("C",),
        variant=variant,
        accelerate=False,
        max_iter=60,
        tol=0.0,
    )
    axis.plot(fit.objective, color=color, label=f"variant={variant!r}")
    falls = np.diff(fit.objective)
    print(
        f"{variant}: {int((falls < -1e-9).sum())} of {len(falls)} iterations lower the objective, by at most {max(0, -falls.min()):.2g}"
    )
axis.set(xlabel="EM iteration", ylabel="log posterior", title="Plain EM from the same start")
_ = axis.legend(frameon=False, fontsize=8)

# %% [markdown]
# ## Exercises
#
# 1. At what β does `path` have the true number of entries, 6? Are they the right ones?
# 2. Give `Laplace` a matrix: `jnp.where(jnp.eye(4) == 1, 0.0, 30.0)` spares the diagonal. What changes?
# 3. `GroupLaplace(beta, "columns")` switches whole states off at once. Find the β at which the first is gone.
# 4. Take `accelerate=False` in `fit_map`. How many iterations does plain EM need to the same tolerance?
# 5. Start `gaps` from `truth.A` instead of the identity. Which of the lines change, and why?
