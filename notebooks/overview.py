"""The README's figure: a cohort with gaps, the MAP's exact zeros beside the truth, and prior against posterior.

python notebooks/overview.py              # writes notebooks/overview.png
"""

from pathlib import Path

import jax
import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np

jax.config.update("jax_enable_x64", True)
from sparse_lds.experiments.figures.evidence import prior_and_posterior
from sparse_lds.experiments.figures.style import MAP, POSTERIOR, PRIOR, TRUTH, VERDICTS
from sparse_lds.inference import compare_map_posterior, fit_map, sample_posterior
from sparse_lds.models import Cohort, Laplace, LDSParams, forecast, kalman_smoother, simulate

A = np.array([[0.9, 0, 0, 0], [0.4, 0.6, 0, 0], [0, 0, 0.8, 0], [0, 0, -0.4, 0.5]])
truth = LDSParams(A, np.eye(4), 0.2 * np.eye(4), 0.2 * np.eye(4), np.zeros(4), np.eye(4))
rng = np.random.default_rng(0)
lengths = rng.integers(20, 40, 60)
whole = simulate(jax.random.key(0), truth, lengths=lengths).cohort.sequences()
gappy = [np.where(rng.random(y.shape) < 0.25, np.nan, y) for y in whole]
cohort = Cohort.from_sequences(gappy)
fit = fit_map(cohort, 4, Laplace(80.0), init=truth, hold=("C",))
posterior = sample_posterior(jax.random.key(1), cohort, fit, num_samples=500)  # β unknown, all free
comparison = compare_map_posterior(fit, posterior, truth=A)
outside = (A.ravel() < comparison.table["hdi_low"]) | (A.ravel() > comparison.table["hdi_high"])
print(cohort, fit.reason, comparison, "truth outside:", outside[outside].index.tolist(), sep="\n")

figure = plt.figure(figsize=(12, 3.7), layout="constrained")
axes = figure.subplots(1, 4, width_ratios=[1.35, 0.85, 0.85, 1.3])

n, seen, horizon = int(np.argmax(lengths)), 26, 12
steps = np.arange(seen)
smoothed = kalman_smoother(fit.params, Cohort.from_sequences([gappy[n][:seen]]))
ahead = forecast(fit.params, cohort.take([n]), horizon, given=seen)
for j, color in ((0, "C0"), (2, "C2")):
    offset = 0 if j == 0 else -4.5
    mean = np.asarray(smoothed.mean)[0, :, j]
    # of a measurement, before the line as after it; C is the identity
    sd = np.sqrt(np.asarray(smoothed.cov)[0, :, j, j] + float(fit.params.R[j, j]))
    axes[0].plot(steps, offset + mean, color=color, lw=1.2)
    axes[0].fill_between(
        steps, offset + mean - 1.6 * sd, offset + mean + 1.6 * sd, color=color, alpha=0.2, lw=0
    )
    mean, sd = np.asarray(ahead.mean)[0, :, j], np.sqrt(np.asarray(ahead.cov)[0, :, j, j])
    later = seen + np.arange(horizon)
    axes[0].plot(later, offset + mean, color=color, lw=1.2, ls="--")
    axes[0].fill_between(
        later, offset + mean - 1.6 * sd, offset + mean + 1.6 * sd, color=color, alpha=0.2, lw=0
    )
    axes[0].plot(offset + gappy[n][: seen + horizon, j], ".", color="k", ms=4)
axes[0].axvline(seen - 0.5, color="0.7", lw=0.8)
axes[0].set(
    title="short series, cells missing (90% bands)",
    xlabel="step (forecast after the line)",
    yticks=[],
)

for axis, values, title in (
    (axes[1], A, "true A"),
    (axes[2], np.asarray(fit.params.A), "MAP: exact zeros"),
):
    axis.imshow(values, cmap="RdBu_r", vmin=-1, vmax=1)
    for (i, j), value in np.ndenumerate(values):
        text = "0" if value == 0 else f"{value:.2f}" if abs(value) > 0.1 else f"{value:.1g}"
        axis.text(j, i, text, ha="center", va="center", fontsize=9 if abs(value) > 0.1 or not value else 8,
                  color="0.6" if value == 0 else "w" if abs(value) > 0.6 else "k")  # fmt: skip
    axis.set(title=title, xticks=[], yticks=[])

table, rows = comparison.table, np.arange(16)[::-1]
zero = table["map_zero"].to_numpy()
after, before = prior_and_posterior(posterior, 4)
axes[3].axvline(0, color="0.8", lw=0.8)
for draws, color, width, label in (
    (before, PRIOR, 6, "95% of the prior"),
    (after, POSTERIOR, 2.5, "95% of the posterior"),
):
    low, high = np.quantile(draws.reshape(len(draws), -1), [0.025, 0.975], axis=0)
    axes[3].hlines(
        rows, low, high, color=color, lw=width, alpha=0.35 if width > 5 else 1, label=label
    )
axes[3].plot(table["map"][~zero], rows[~zero], "x", color=MAP, ms=6, mew=1.6, label="MAP")
axes[3].plot(table["map"][zero], rows[zero], "o", color=MAP, ms=6, mfc="w", label="MAP, exactly 0")
axes[3].plot(A.ravel(), rows, "|", color=TRUTH, ms=9, mew=1.6, label="truth")
for row, verdict in zip(rows, table["verdict"], strict=True):
    color, mark, _ = VERDICTS[verdict]
    axes[3].text(1.25, row, mark, color=color, va="center", ha="center", fontsize=9, weight="bold")
axes[3].set_yticks(rows, [f"A[{i},{j}]" for i, j in table.index], fontsize=7)
found = [f"{VERDICTS[v][1]} {v}" for v in VERDICTS if (table["verdict"] == v).any()]
axes[3].set(title="what the data say of each entry", xlim=(-0.75, 1.35), xlabel="   ".join(found))
figure.legend(fontsize=8, frameon=False, loc="outside lower center", ncols=5)
figure.savefig(Path(__file__).with_suffix(".png"), dpi=110)
