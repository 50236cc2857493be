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
from sparse_lds.experiments.synthetic import synthetic_labs
from sparse_lds.inference import (
    Constraints,
    compare_map_posterior,
    diagnose,
    fit_map,
    sample_posterior,
    select,
)
from sparse_lds.models import Laplace, forecast

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
# ## How many states, and which β?
#
# Values that are positive and skewed, such as creatinine, are better modelled by their logarithms: `binned.cohort.log(["CREA"])`, and no forecast is negative. Channels first get mean 0 and standard deviation 1, so that one β is fair to all; forecasts go back to the units of the file. `select` holds out patients, fits the others, and asks how well those held out are
# predicted. Among the choices within one standard error of the best it takes the sparsest. `Q="identity"` fixes the scales of the states, without which the penalty has no minimum (notebook 4).

# %% tags=["varies"]
cohort = binned.cohort.standardize()
chosen = select(
    cohort, [1, 2, 3], betas=(10.0, 30.0, 100.0, 300.0), n_folds=3, Q="identity", max_iter=150
)
shown = ["n_states", "beta", "density", "density_se", "error", "nonzero"]
print(chosen.table[shown].round(3).to_string(index=False))
print(chosen.one_se)

# %% [markdown]
# `density` is the log predictive density of a held-out value (larger is better), `error` the mean absolute error of forecasts, over all tests in their own units. Is the best β inside of the grid? If it is at an edge, widen the grid. Do the rows differ by more
# than `density_se`? If not, the patients cannot tell these models apart, and the sparsest is a fair choice.
#
# ## The fit

# %% tags=["varies"]
n_states, beta = chosen.one_se
fit = fit_map(cohort, n_states, Laplace(beta), Q="identity", n_restarts=3)
print(fit)
print(np.asarray(fit.params.A).round(3))

# %% [markdown]
# Did it converge, and does it warn? (On the made-up file it does, and rightly: MCHC is calculated from the other two tests, so that one combination of the three has hardly an error of its own.) A fit that has not converged can go on: `fit_map(..., init=fit.params, max_iter=5000)`. Save it; it opens again with `load_fit`.

# %% tags=["varies"]
save_fit(folder / "fit.json", fit)
assert np.array_equal(load_fit(folder / "fit.json").params.A, fit.params.A)

# %% [markdown]
# ## Does the posterior agree?
#
# The verdict comes first: draws that are not to be trusted say nothing. Remember what the question is: the rest of the fit is held, basis included, so an entry of $A$ means what it means in *this* basis.

# %% tags=["varies"]
posterior = sample_posterior(jax.random.key(0), cohort, fit, num_samples=500)
save_posterior(posterior, folder / "posterior.nc")
print(diagnose(posterior), "\n")
comparison = compare_map_posterior(fit, posterior)
print(comparison)

# %% tags=["varies"]
figure = plot_transition(comparison)
# %% [markdown]
# ## Which test speaks to which?
#
# The states above have no names: they are what predicts best. If the question is whether *one test* drives *another*, let each state be the true level of a test: as many states as tests, $C = I$ held, a diagonal $R$
# (`--levels` on the command line). Then an entry of $A$ speaks of two tests, and the basis is not the penalty's choice.

# %% tags=["varies"]
by_test = fit_map(cohort, cohort.n_channels, Laplace(30.0), constraints=Constraints.levels())
print(by_test)
draws = sample_posterior(jax.random.key(2), cohort, by_test, num_samples=500)
print(diagnose(draws))
figure = plot_transition(compare_map_posterior(by_test, draws, names=cohort.channels))
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
# 1. Do all of this with a file of your own. In the shell it is `sparse-lds fit labs.csv --levels --beta auto --out results/mine` and so on (README).
# 2. Hold out your last ten patients altogether. How many of their values are inside the 90% bands?
# 3. Halve `hours`. What becomes of the missing share, the memory (eigenvalues of $A$) and the error?
