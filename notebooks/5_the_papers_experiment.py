# %% [markdown]
# # 5. The paper's experiment
#
# **You will learn** how lab results become sequences (bins, panels, gaps), what the paper's prediction task and its AMAE measure, how Table 1 and the figures come about (on a reduced grid), and
# what difference it makes to treat gaps as missing instead of filling them with straight lines.
#
# The paper's patients are private. The cohort here is **synthetic**: generated, with a known truth, in the units and with the rounding of real red-cell indices. No patient is in it.

# %%
import tempfile

import jax
import matplotlib.pyplot as plt
import numpy as np

jax.config.update("jax_enable_x64", True)
from sparse_lds.experiments.labs import bin_labs, labs_from_frame
from sparse_lds.experiments.protocol import evaluate, last_value, lds_forecaster, make_tasks
from sparse_lds.experiments.synthetic import synthetic_labs
from sparse_lds.experiments.table1 import Plan, run_table1
from sparse_lds.inference import fit_em

# %% [markdown]
# ## From lab results to sequences
#
# A long table, as a laboratory exports it; bins of 8 hours; at least 10 panels a patient. As in the paper, lines are drawn between complete panels;
# with `gaps="missing"` a value counts wherever it stands.

# %%
frame = synthetic_labs().frame
print(frame.head(4).to_string(index=False), "\n")
interpolated = bin_labs(labs_from_frame(frame), gaps="interpolate")
missing = bin_labs(labs_from_frame(frame), gaps="missing")
print("\n".join(interpolated.log), "\n...", missing.log[-1])

# %%
n = 3
figure, axes = plt.subplots(3, 1, figsize=(8, 5), sharex=True, layout="constrained")
units = {"MCHC": "g/dL", "MCH": "pg", "MCV": "fL"}
for j, (axis, channel) in enumerate(zip(axes, missing.cohort.channels, strict=True)):
    axis.plot(
        8 * np.arange(len(interpolated.cohort.sequence(n))),
        interpolated.cohort.sequence(n)[:, j],
        color="0.7",
        lw=1,
        label="interpolated",
    )
    axis.plot(
        8 * np.arange(len(missing.cohort.sequence(n))),
        missing.cohort.sequence(n)[:, j],
        "o",
        ms=4,
        label="measured",
    )
    axis.set_ylabel(f"{channel} ({units[channel]})")
axes[0].set_title(f"Patient {missing.cohort.ids[n]}: a straight line is not a measurement")
axes[0].legend(frameon=False, fontsize=8)
_ = axes[-1].set_xlabel("hours")
# %% [markdown]
# ## The task
#
# For a test patient, draw pairs $1 \le \psi < \varphi \le n$: the model sees steps $1 \ldots \psi$ and predicts step $\varphi$, $\hat y_\varphi = C A^{\varphi - \psi} \hat z_{\psi|\psi}$. The absolute error,
# averaged over channels, 5 pairs for each patient and all patients, is the AMAE. It is repeated 10 times with other pairs.

# %%
cohort = interpolated.cohort
train = cohort.take(range(50)).standardize()
test = cohort.take(range(100, 400)).standardize_like(train)
tasks = make_tasks(test, seed=0)
print(
    "first patient's pairs (ψ, φ):",
    [(int(a), int(b)) for a, b in zip(tasks.psi[:5], tasks.phi[:5], strict=True)],
)
print(
    f"AMAE of the last value carried forward: {evaluate(last_value, test).mean:.3f} (standardised units)"
)

# %% [markdown]
# ## Table 1, reduced
#
# OLDS and SLDS at four numbers of states (the truth has five), with 50 and with 100 training patients. β is chosen on the training patients only, by a part of them that is held out. The whole table (ten numbers of states,
# more values of β, more starts and longer fits) is `sparse-lds table1 synthetic`: it takes some minutes, shows the time left, and goes on where it stopped if it is killed. Its result is in docs/paper.md.

# %% tags=["varies"]
plan = Plan(states=(2, 5, 9, 15), n_test=300, repetitions=5, n_starts=1, n_betas=5, max_iter=100)
with tempfile.TemporaryDirectory() as folder:
    table = run_table1(cohort, folder, plan, workers=2)
print(table.text())

# %% [markdown]
# Figures 1 and 2 of the paper: 50 training patients, and 100.

# %% tags=["varies"]
figures = [table.figure(size) for size in plan.sizes]
# %% [markdown]
# The claims are judged as they stand: a run may support them or not, and the text above says which.
#
# ## Gaps: filled, or missing?
#
# Interpolation before training has two costs. It makes the series smoother than they are, so that the model trusts its dynamics too much. And it *leaks*: a straight line to the next measurement
# tells the model at step ψ about a measurement after ψ. To compare fairly, both models now face the same tasks: **gaps are missing in the test patients**, and only measured values are predicted.

# %%
gappy_train = missing.cohort.take(range(50)).standardize()
gappy_test = missing.cohort.take(range(100, 400)).standardize_like(gappy_train)
line_train = interpolated.cohort.take(range(50)).standardize(
    gappy_train.labels.shift, gappy_train.labels.scale
)
for name, data in (("interpolated", line_train), ("missing", gappy_train)):
    fit = fit_em(data, 3, max_iter=150, accelerate=False)
    error = evaluate(lds_forecaster(fit.params), gappy_test, repetitions=5)
    print(f"3 states, trained with gaps {name:12}: AMAE {error.mean:.3f} ± {error.spread:.3f}")
print(f"last value carried forward: {evaluate(last_value, gappy_test, repetitions=5).mean:.3f}")

# %% [markdown]
# On this cohort the difference is no larger than the spread: both see the same values where it matters most, and bins are seldom empty for long. The gain is in honesty rather than in error: nothing was made up, and
# bands widen where nothing was measured (notebook 6).
#
# ## Exercises
#
# 1. Plot the error against the distance $\varphi - \psi$ for OLDS and for the last value carried forward. Where do they cross?
# 2. Evaluate the model trained on interpolated data on *interpolated* test patients. Why is its error smaller there, and is that good news?
# 3. MCHC = 100 · MCH / MCV. Leave MCHC out (`tests=`) and predict it from the other two. Does the LDS gain from having it?
# 4. Change the bins to 24 hours. What happens to the number of panels, and to the error at the same distance in hours?
