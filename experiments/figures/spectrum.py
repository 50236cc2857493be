"""The figure of A's eigenvalues, which no change of basis alters."""

from typing import Any

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.figure import Figure

from ...inference import FitResult
from ...inference.posterior import arviz_compat as az
from .style import MAP, POSTERIOR, styled


@styled
def plot_eigenvalues(fit: FitResult, posterior: Any, n: int = 400) -> Figure:
    """Draw the eigenvalues of the MAP's A, and of draws, in the complex plane with the unit circle."""
    data = az.group(posterior, "posterior")
    if "A" not in data:
        raise ValueError(
            "A was held when this posterior was sampled; its eigenvalues are the fit's"
        )
    k = fit.n_states  # own levels of the sequences have eigenvalues of 1
    A = data["A"].values[..., :k, :k].reshape(-1, k, k)
    A = A[np.unique(np.linspace(0, len(A) - 1, min(n, len(A))).astype(int))]
    values, mode = np.linalg.eigvals(A).ravel(), np.linalg.eigvals(np.asarray(fit.moving.A))
    figure, axis = plt.subplots(figsize=(6.5, 3.8), layout="constrained")
    angle = np.linspace(0, 2 * np.pi, 200)
    axis.plot(np.cos(angle), np.sin(angle), color="0.7", lw=0.8)
    axis.plot(
        values.real,
        values.imag,
        ".",
        color=POSTERIOR,
        ms=3,
        alpha=0.25,
        mew=0,
        rasterized=True,
        label=f"{len(A)} draws",
    )
    axis.plot(mode.real, mode.imag, "x", color=MAP, ms=8, mew=2, label="MAP")
    every = np.append(values, mode)
    high = max(0.2, 1.15 * float(np.abs(every.imag).max()))
    left, right = float(every.real.min()), max(1.0, float(every.real.max()))
    space = 0.06 * (right - left + 0.2)  # where the eigenvalues are, and not the whole circle
    axis.set(
        xlim=(left - space, right + space),
        ylim=(-high, high),
        aspect="equal",
        xlabel="real part",
        ylabel="imaginary part",
    )
    axis.set_title("Eigenvalues of A")
    legend = axis.legend(fontsize=8, loc="upper right", frameon=False, markerscale=1.5)
    for handle in legend.legend_handles:
        if handle is not None:
            handle.set_alpha(1.0)
    return figure
