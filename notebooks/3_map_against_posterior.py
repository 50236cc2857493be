# %% [markdown]
# # 3. A MAP fit against its posterior
#
# **You will learn** how the same prior object gives the MAP its exact zeros and NUTS its target; how to tell with ArviZ whether the draws
# can be trusted; how each zero is judged by named rules; and when the two disagree, and why.

# %%
import jax
import matplotlib.pyplot as plt
import numpy as np

jax.config.update("jax_enable_x64", True)
import arviz as az
from sparse_lds.experiments.figures import plot_forecast_fan, plot_forest, plot_transition
from sparse_lds.inference import compare_map_posterior, diagnose, fit_map, sample_posterior
from sparse_lds.models import Laplace, LDSParams, simulate

# %% [markdown]
# ## The fit
#
# The cohort of notebook 2, with one weak link: $A_{20} = 0.1$, which 40 patients can only just show.

# %%
A = np.array([[0.9, 0, 0, 0], [0.4, 0.6, 0, 0], [0.1, 0, 0.8, 0], [0, 0, -0.4, 0.5]])
truth = LDSParams(A, np.eye(4), 0.2 * np.eye(4), 0.2 * np.eye(4), np.zeros(4), np.eye(4))
cohort = simulate(jax.random.key(0), truth, lengths=[25] * 40).cohort
fit = fit_map(cohort, 4, Laplace(30.0), init=truth, hold=("C",))
print(fit.reason)
print(np.asarray(fit.params.A).round(3))

# %% [markdown]
# ## The posterior
#
# `sample_posterior` runs NUTS on the NumPyro model with the prior that the fit used, started at the fit and scaled by the curvature there. By default $A$ is sampled and the rest is held
# at the MAP: the mode of that posterior *is* the MAP's $A$, so the question "does the posterior agree?" has a meaning. The states are integrated out exactly; only $A$ is sampled.

# %% tags=["varies"]
posterior = sample_posterior(jax.random.key(1), cohort, fit, num_samples=1000)
print(diagnose(posterior))

# %% [markdown]
# The verdict is in words; the numbers are ArviZ's, and the object is ArviZ's own (saved by `save_posterior`, opened by anything that reads netCDF).

# %% tags=["varies"]
az.summary(posterior, var_names=["A"], kind="diagnostics", round_to=4).head(8)

# %% [markdown]
# A look at the chains beside the numbers: in a rank plot, chains that explore the same distribution have ranks that are uniform, each bar as high as the next. Shown are the weak link and the memory of state 2.

# %% tags=["varies"]
az.plot_rank(posterior, var_names=["A"], coords={"state": [2], "from_state": [0, 2]})
plt.gcf().set_size_inches(10, 4.5)

# %% [markdown]
# ## Each zero, judged
#
# A Laplace posterior has no mass *at* zero, so "the posterior agrees that $A_{ij} = 0$" needs a rule. Four are computed, each by name:
#
# - `hdi`: the highest-density interval covers 0;
# - `epsilon`: $P(|A_{ij}| < \varepsilon) > \frac12$, with ε given;
# - `neighbourhood`: $P(|A_{ij}| < \mathrm{sd}_{ij}) > \frac12$, the scaled-neighbourhood criterion;
# - `summary`: a sparse summary of the posterior (decoupled shrinkage and selection) has a zero there.

# %% tags=["varies"]
comparison = compare_map_posterior(fit, posterior, epsilon=0.1, truth=A)
print(comparison)

# %% tags=["varies"]
figure = plot_transition(comparison)
# %% tags=["varies"]
figure = plot_forest(comparison)
# %% [markdown]
# ## When they disagree, and why
#
# In the table above no zero of the MAP is contradicted. The disagreement is on the other side: the MAP *keeps* small entries (marked ✕) that the posterior cannot tell from zero. A MAP entry leaves only when its gradient
# falls below β; a posterior weighs the whole region around it. So here the MAP is the less sparse of the two, and its small entries are what to doubt first.
#
# What the posterior cannot do is judge the prior that it shares with the MAP. Raise β until the MAP wipes out a link that is truly there: the posterior, under the same β, shrinks it too.

# %% tags=["varies"]
for beta in (10.0, 300.0):
    strong = fit_map(cohort, 4, Laplace(beta), init=truth, hold=("C",))
    draws = sample_posterior(jax.random.key(2), cohort, strong, num_samples=300, num_chains=2)
    table = compare_map_posterior(strong, draws, epsilon=0.1).table
    zeros = table[table["map_zero"]]
    wrong = [at for at in zeros.index if A[at] != 0]
    print(
        f"β = {beta:.0f}: {len(zeros)} zeros in the MAP, {int(zeros['zero_hdi'].sum())} confirmed by the HDI; truly not zero: {wrong}"
    )

# %% [markdown]
# A wrong zero that the posterior confirms is the price of a β that was never asked for: choose it by held-out patients (`select`), or let it be learned (`GammaLaplace`, exercise 2).

# %% [markdown]
# ## Forecasts that carry the uncertainty of A

# %% tags=["varies"]
figure = plot_forecast_fan(jax.random.key(3), fit, posterior, cohort, 0, 12)

# %% [markdown]
# ## Exercises
#
# 1. Replace the prior by `Horseshoe()` (`sample_posterior(..., prior=Horseshoe())`). Which entries move most?
# 2. `GammaLaplace()` learns β. Where does its posterior put it, against the 30 that we chose?
# 3. Sample with `free=("A", "Q", "R")`. Do the intervals of $A$ widen?
# 4. Sample with everything free: `free=LDSParams._fields`. What does the verdict say, and what has not mixed? (Notebook 4.)
# 5. Make the cohort four times larger. Is the weak link $A_{20}$ found by the MAP, and by the posterior?
