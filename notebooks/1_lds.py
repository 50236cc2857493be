# %% [markdown]
# # 1. The linear dynamical system from scratch
#
# **You will learn** what a linear dynamical system (LDS) assumes, how its states are found from noisy and gappy
# observations (filter and smoother), how it forecasts, and how sure it is. Every equation stands beside the code
# that computes it, and each is checked in a line or two of NumPy.

# %%
import jax
import matplotlib.pyplot as plt
import numpy as np

jax.config.update("jax_enable_x64", True)
from sparse_lds.models import (
    Cohort,
    Gaussian,
    LDSParams,
    forecast,
    kalman_filter,
    kalman_smoother,
    log_likelihood,
    predict,
    simulate,
    update,
)

# %% [markdown]
# ## The model
#
# A hidden state $z_t$ moves linearly and is pushed by noise; a measurement $y_t$ sees a linear image of it, with noise:
#
# $$z_1 \sim N(\pi_1, V_1), \qquad z_t = A z_{t-1} + e_t,\; e_t \sim N(0, Q), \qquad y_t = C z_t + v_t,\; v_t \sim N(0, R).$$
#
# In our example the first state is slow ($0.95$). It drives a second one, and not the other way round: $A_{01} = 0$.
# That zero is what the sparse LDS of the next notebook is after. We measure three channels.

# %%
truth = LDSParams(
    A=np.array([[0.95, 0.0], [0.3, 0.6]]),
    C=np.array([[1.0, 0.0], [0.0, 1.0], [0.5, 0.5]]),
    Q=np.diag([0.1, 0.05]),
    R=np.diag([0.3, 0.3, 0.3]),
    pi1=np.zeros(2),
    V1=np.eye(2),
)
simulated = simulate(jax.random.key(1), truth, lengths=[60])
z, y = np.asarray(simulated.states)[0], np.asarray(simulated.cohort.y)[0]

figure, axes = plt.subplots(2, 1, figsize=(8, 4.6), sharex=True, layout="constrained")
for k, name in enumerate(("slow state", "driven state")):
    axes[0].plot(z[:, k], label=name)
for j in range(3):
    axes[1].plot(y[:, j], "osd"[j], ms=3, color=f"C{j + 2}", label=f"channel {j}")
axes[0].set(ylabel="hidden states z", title="What happens, and what we see of it")
axes[1].set(ylabel="measurements y", xlabel="step t")
for axis in axes:
    axis.legend(ncols=3, fontsize=8, frameon=False)

# %% [markdown]
# ## Filter: what do we know of today, given the past?
#
# Predict with the dynamics, correct with the measurement. With $m$ and $P$ the mean and covariance of $z_t$ given $y_{1:t-1}$:
#
# $$S = C P C' + R, \quad K = P C' S^{-1}, \quad m^+ = m + K (y_t - C m), \quad P^+ = P - K C P,$$
#
# and the next prediction is $A m^+$, $A P^+ A' + Q$. In NumPy that is a short loop:


# %%
def filter_by_hand(p, y):
    m, P, means, log_p = p.pi1, p.V1, [], 0.0
    for y_t in y:
        S = p.C @ P @ p.C.T + p.R
        K, e = P @ p.C.T @ np.linalg.inv(S), y_t - p.C @ m
        log_p -= 0.5 * (e @ np.linalg.solve(S, e) + np.linalg.slogdet(2 * np.pi * S)[1])
        m, P = m + K @ e, P - K @ p.C @ P
        means.append(m)
        m, P = p.A @ m, p.A @ P @ p.A.T + p.Q
    return np.array(means), log_p


by_hand, log_p = filter_by_hand(truth, y)
filtered = kalman_filter(truth, simulated.cohort)
print("the means agree to 1e-10:", np.abs(filtered.mean[0] - by_hand).max() < 1e-10)
print(
    f"log-likelihood by hand {log_p:.6f}, by the package {log_likelihood(truth, simulated.cohort)[0]:.6f}"
)

# %% [markdown]
# The package has these two halves as functions, `update` and `predict`, for one step of one sequence: to read, to try things with,
# and to build on. A channel that is NaN was not measured.

# %%
state, total = Gaussian(truth.pi1, truth.V1), 0.0
for y_t in y:
    state, gained = update(state, y_t, truth.C, truth.R)
    state, total = predict(state, truth.A, truth.Q), total + float(gained)
print(f"log-likelihood step by step {total:.6f}")

# %% [markdown]
# ## Smoother: what do we know of a day, given all of them?
#
# The smoother also looks ahead, so that its bands are narrower. Here a stretch of the data is missing: the cells are NaN.
# Nothing is filled in; the model simply is less sure there.

# %%
gappy = y.copy()
gappy[20:32] = np.nan  # nothing was measured
gappy[40:50, 0] = np.nan  # one channel was not
cohort = Cohort.from_sequences([gappy], channels=["a", "b", "c"])
print(cohort)

filtered, smoothed = kalman_filter(truth, cohort), kalman_smoother(truth, cohort)
figure, axes = plt.subplots(1, 2, figsize=(9, 3.2), sharey=True, layout="constrained")
for axis, name, x in zip(axes, ("filter", "smoother"), (filtered, smoothed), strict=True):
    mean, sd = np.asarray(x.mean)[0, :, 0], np.sqrt(np.asarray(x.cov)[0, :, 0, 0])
    axis.axvspan(19.5, 31.5, color="0.93", label="nothing measured")
    axis.fill_between(range(60), mean - 1.645 * sd, mean + 1.645 * sd, alpha=0.3, label="90% band")
    axis.plot(mean, label="mean")
    axis.plot(z[:, 0], "k", lw=0.8, label="truth")
    axis.set(title=f"{name}: the slow state", xlabel="step t")
axes[0].set_ylabel("z, first entry")
_ = axes[0].legend(fontsize=8, frameon=False, ncols=2, loc="lower left")
# %% [markdown]
# Is a 90% band right in 90% of the cases? Over many sequences it has to be. This is what a model that knows its
# own uncertainty means, and what we will ask of the *posterior* in notebook 3.

# %%
many = simulate(jax.random.key(2), truth, lengths=[40] * 200)
x = kalman_smoother(truth, many.cohort)
sd = np.sqrt(np.diagonal(np.asarray(x.cov), axis1=-2, axis2=-1))
inside = np.abs(np.asarray(x.mean) - np.asarray(many.states)) < 1.645 * sd
print(f"truth inside the 90% band: {inside.mean():.1%} of {inside.size} states")

# %% [markdown]
# ## Forecast
#
# After the last measurement there is nothing left to correct with: $\hat y_{T+h} = C A^h \hat z_{T|T}$. How far a forecast remembers is the
# eigenvalues of $A$: a state with eigenvalue $\lambda$ is half forgotten after $\log 0.5 / \log |\lambda|$ steps.

# %%
seen, horizon = 35, 25
ahead = forecast(truth, simulated.cohort, horizon, given=seen)
steps = np.arange(seen, seen + horizon)
figure, axes = plt.subplots(1, 3, figsize=(10, 2.9), sharey=True, layout="constrained")
for j, axis in enumerate(axes):
    mean = np.asarray(ahead.mean)[0, :, j]
    sd = np.sqrt(np.asarray(ahead.cov)[0, :, j, j])
    axis.plot(y[:, j], ".", color="0.4", ms=4, label="measured")
    axis.axvline(seen - 0.5, color="0.7", lw=0.8)
    axis.fill_between(
        steps, mean - 1.645 * sd, mean + 1.645 * sd, color="C0", alpha=0.3, label="90% band"
    )
    axis.plot(steps, mean, color="C0", label="forecast")
    axis.set(title=f"channel {j}", xlabel="step t")
axes[0].set_ylabel("measurement y")
axes[0].legend(fontsize=8, frameon=False)
for value in np.linalg.eigvals(truth.A):
    print(
        f"eigenvalue {value:.2f}: half forgotten after {np.log(0.5) / np.log(abs(value)):.1f} steps"
    )

# %% [markdown]
# ## Exercises
#
# 1. Set $A_{01} = -0.3$. What do the states do now, and what do the eigenvalues become?
# 2. Make `R` a hundred times smaller, then larger. How do filter and smoother differ in each case?
# 3. Compute `filter_by_hand` on the gappy data: drop the rows of $C$ and $R$ whose channel is missing. Compare with `kalman_filter`,
#    and with `update` and `predict` in a loop.
# 4. Take `W = np.array([[1.0, 0.5], [0.0, 2.0]])` and `change_basis(truth, W)` (in `sparse_lds.models`). Show that the log-likelihood
#    is the same, and look at `A`: where did its zero go? Notebook 4 is about this.
