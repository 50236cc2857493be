# %% [markdown]
# # 7. Your own lab results
#
# **You will learn** to go from a CSV of your own to a sparse fit, a posterior that judges its zeros, and forecasts with bands; and what to look at on the way. To use it on your data, change the cell under "The file".

# %%
import tempfile
from pathlib import Path

import jax
import numpy as np

jax.config.update("jax_enable_x64", True)
from sparse_lds.experiments.figures import plot_forecast_fan, plot_transition
from sparse_lds.experiments.labs import bin_labs, read_labs
from sparse_lds.experiments.saving import load_fit, save_fit, save_posterior
from sparse_lds.experiments.skill import skill
from sparse_lds.experiments.synthetic import synthetic_labs
from sparse_lds.inference import (
    compare_map_posterior,
    diagnose,
    fit_map,
    level_candidates,
    sample_posterior,
    select,
)
from sparse_lds.models import forecast

folder = Path(tempfile.mkdtemp())  # yours may be any folder

# %% [markdown]
# ## The file
#
# One row for each value. Yours will have columns of other names: say which is which. This file is made up, by the last two lines before it is read: with a file of your own, leave them out.

# %%
file = folder / "example_labs.csv"  # or your own
names = {"id": "patient", "time": "taken", "test": "lab", "value": "result"}
made_up = synthetic_labs(n_patients=40).frame.rename(columns=names)
made_up.to_csv(file, index=False)

labs = read_labs(file, **names)
binned = bin_labs(labs, hours=8, gaps="missing")
print(binned)

# %% [markdown]
# Read this log first: what was dropped, and why? A *panel* is a bin with a value of every test, and a patient needs ten of them (`min_panels`). Times may be dates or numbers (`time_unit="d"` if they count days), and bins of any length (`step="1d"`); what is not a number is counted and left out. `gaps="missing"` leaves empty bins to the model; `"interpolate"` draws lines, as the paper did.
# A bin should be about as wide as the time between two draws: look at how much is missing.
#
# ## Which model, and which β?
#
# Values that are positive and skewed, such as creatinine, are better modelled by their logarithms: `binned.cohort.log(["CREA"])`, and no forecast is negative. Channels first get mean 0 and standard deviation 1, so that one β is fair to all; forecasts go back to the units of the file.
#
# Each state is to be the true level of a test ($C = I$, a diagonal $R$), so that an entry of $A$ speaks of two tests: which one drives which? The prior pulls $A$ to the identity: a level stays where it is unless the data say otherwise. Weak priors on the noise keep it away from zero. What is left open
# is for patients that are held out to decide: does each patient keep a level of their own (`own levels`), is the noise of the tests independent (`Q diagonal`), and how strong is the pull, β?

# %% tags=["varies"]
cohort = binned.cohort.standardize()
chosen = select(
    cohort,
    candidates=level_candidates(cohort),
    rule="best_error",
    priors="weak",
    n_betas=7,
    n_folds=3,
    tol=1e-3,
)
shown = ["candidate", "beta", "density", "density_gap_se", "error", "error_gap_se", "nonzero"]
print(chosen.table[shown].round(3).to_string(index=False))
for rule in ("best_error", "best_density", "one_se"):
    print(f"{rule}: {chosen.choice(rule)}")

# %% [markdown]
# `density` is the log predictive density of a held-out value (larger is better), `error` the mean absolute error of all forecasts, in standard deviations. The two standard errors are of the *difference* from the best row, patient by patient: rows that are nearer than that to the best cannot be told apart from it.
# Density and error may disagree, and then it is for you to say what the model is for.
#
# ## Is it any good?
#
# Before any entry of $A$ is read: does the model forecast better than the last value carried forward? The baselines are fitted and judged on the same folds, and the model's own error is that of a choice made without the patient.

# %% tags=["varies"]
print(skill(cohort, chosen))

# %% [markdown]
# A model that does not beat the last value may still describe how tests move together, but its $A$ is then no more than a description.
#
# ## The fit

# %% tags=["varies"]
fit = fit_map(
    cohort,
    chosen.fit.n_states,
    chosen.fit.prior,
    init=chosen.fit.params,
    constraints=chosen.fit.constraints,
    priors="weak",
)
print(fit)
print(np.asarray(fit.moving.A).round(3))

# %% [markdown]
# Did it converge, and does it warn? A warning names the test that it is about. A fit that has not converged can go on: `fit_map(..., init=fit.params, max_iter=5000)`. Save it; it opens again with `load_fit`.

# %% tags=["varies"]
save_fit(folder / "fit.json", fit)
assert np.array_equal(load_fit(folder / "fit.json").params.A, fit.params.A)

# %% [markdown]
# ## Does the posterior agree?
#
# The verdict comes first: draws that are not to be trusted say nothing. Everything that the fit learned is sampled, with its prior on $A$ but for β, which is unknown here; a zero is an entry *at the prior's centre*, on the diagonal 1.

# %% tags=["varies"]
posterior = sample_posterior(jax.random.key(0), cohort, fit, num_samples=500)
save_posterior(posterior, folder / "posterior.nc")
print(diagnose(posterior), "\n")
comparison = compare_map_posterior(fit, posterior, names=cohort.channels)
print(comparison)

# %% tags=["varies"]
figure = plot_transition(comparison)
# %% [markdown]
# ## Forecasts
#
# Six steps, two days, after the last value of every patient; in the units of the file.

# %% tags=["varies"]
ahead = forecast(fit.params, cohort, horizon=6)
mean = np.asarray(cohort.to_units(ahead.mean))
print(f"patient {cohort.ids[0]}, {', '.join(cohort.channels)}:\n{mean[0].round(1)}\n")
longest = int(np.argmax(cohort.lengths))
figure = plot_forecast_fan(jax.random.key(1), fit, posterior, cohort, longest, given=20)

# %% [markdown]
# ## Exercises
#
# 1. Do all of this with a file of your own. In the shell it is `sparse-lds run labs.csv --out results/mine` (docs/your_data.md).
# 2. Hold out your last ten patients altogether. How many of their values are inside the 90% bands?
# 3. Hidden states instead of levels, as in the paper: `candidates=hidden_candidates([2, 3])`. Do they forecast better?
# 4. Halve `hours`. What becomes of the missing share, the memory (eigenvalues of $A$) and the error?
