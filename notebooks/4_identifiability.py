# %% [markdown]
# # 4. What a zero in A means, and does not mean
#
# **You will learn** that the likelihood cannot see the basis of the hidden states; that an $\ell_1$ penalty with a free basis therefore shrinks
# *eigenvalues*, and so chooses the number of states; what has to be held for a single entry of $A$ to mean something; and which answers need no basis at all.

# %%
import jax
import matplotlib.pyplot as plt
import numpy as np

jax.config.update("jax_enable_x64", True)
from sparse_lds.inference import (
    compare_map_posterior,
    fit_map,
    identifiability_report,
    sample_posterior,
)
from sparse_lds.inference.identifiability import align
from sparse_lds.models import Laplace, LDSParams, change_basis, log_likelihood, simulate

np.set_printoptions(precision=2, suppress=True)

A = np.array([[0.9, 0, 0], [0.5, 0.6, 0], [0, -0.4, 0.3]])
truth = LDSParams(
    A,
    np.array([[1.0, 0, 0], [0, 1, 0], [0, 0, 1], [1, 1, 1]]),
    0.2 * np.eye(3),
    0.2 * np.eye(4),
    np.zeros(3),
    np.eye(3),
)
cohort = simulate(jax.random.key(0), truth, lengths=[25] * 50).cohort

# %% [markdown]
# ## The same likelihood, other zeros
#
# Call the states by other names: $z \to W z$ with any invertible $W$. Then $A \to W A W^{-1}$, $C \to C W^{-1}$, $Q \to W Q W'$, $\ldots$, and the distribution
# of what we measure is *the same*. Below, one model in three bases: its own, a random one, and the eigenbasis.

# %%
random = np.random.default_rng(0).normal(size=(3, 3))
eigen = np.linalg.inv(np.linalg.eig(A)[1].real)
figure, axes = plt.subplots(1, 3, figsize=(9, 3.1), layout="constrained")
for axis, name, W in zip(
    axes,
    ("its own basis", "a random basis", "the eigenbasis"),
    (np.eye(3), random, eigen),
    strict=True,
):
    p = change_basis(truth, W)
    shown = np.asarray(p.A)
    axis.imshow(shown, cmap="RdBu_r", vmin=-1.2, vmax=1.2)
    for (i, j), value in np.ndenumerate(shown):
        axis.text(
            j,
            i,
            "0" if abs(value) < 1e-12 else f"{value:.2f}",
            ha="center",
            va="center",
            color="w" if abs(value) > 0.8 else "k",
        )
    axis.set(
        xticks=[],
        yticks=[],
        title=f"{name}\nlog-likelihood {float(log_likelihood(p, cohort).sum()):.3f}",
    )

# %% [markdown]
# So a zero of $A$ is a statement about a *basis*, and the data alone say nothing about it. What fixes the basis is what is held. The report counts the directions $X$ (as in $W = e^{X}$)
# that change nothing that is held:

# %%
for held in ((), ("Q",), ("Q", "V1"), ("C",)):
    report = identifiability_report(truth, held)
    print(f"held: {', '.join(held) or 'nothing':8}  directions left: {report.n_directions}")
print()
print(identifiability_report(truth, ("Q",)))

# %% [markdown]
# ## What the penalty does with a free basis
#
# Over all bases, $\lVert W A W^{-1} \rVert_1 \ge \sum_i |\lambda_i(A)|$: each unit matrix has nuclear norm 1, so $\lVert \cdot \rVert_1 \ge \lVert \cdot \rVert_*$, and Weyl's inequality does the
# rest. Where $A$ can be diagonalised over the reals, the bound is attained: by the eigenbasis. Here are 5,000 random bases:

# %%
rng = np.random.default_rng(1)
norms = [np.abs(W @ A @ np.linalg.inv(W)).sum() for W in rng.normal(size=(5000, 3, 3))]
eigenvalues = np.abs(np.linalg.eigvals(A)).sum()
figure, axis = plt.subplots(figsize=(6, 3), layout="constrained")
axis.hist(norms, bins=np.geomspace(1, 100, 60), color="0.7")
for value, label, color in (
    (eigenvalues, "Σ |λ|", "C3"),
    (np.abs(A).sum(), "the true, sparse A", "C0"),
):
    axis.axvline(value, color=color, label=f"{label} = {value:.1f}")
axis.set(
    xscale="log",
    xlabel="‖WAW⁻¹‖₁",
    ylabel="random bases",
    title="The penalty in 5,000 bases of one model",
)
_ = axis.legend(frameon=False, fontsize=8)
# %% [markdown]
# The truth is sparse, and yet not the least: the MAP, free to choose, prefers *its* diagonal basis. So with a free basis SLDS is a shrinkage of eigenvalues. One that is
# driven to zero switches a state off, and that answers a question that does not depend on the basis: **how many states are there?** We fit six states to data from three.

# %% tags=["varies"]
betas = (1.0, 3.0, 10.0, 20.0, 30.0, 60.0, 100.0)
moduli = []
for beta in betas:
    fit = fit_map(cohort, 6, Laplace(beta), Q="identity", max_iter=1000)
    moduli.append(np.sort(np.abs(np.linalg.eigvals(fit.params.A)))[::-1])
    print(f"β = {beta:4.0f}: {(moduli[-1] > 0.1).sum()} active states, |λ| = {moduli[-1]}")
figure, axis = plt.subplots(figsize=(6, 3.2), layout="constrained")
axis.semilogx(betas, np.array(moduli), "o-", ms=4, color="C0", lw=1)
for value in np.abs(np.linalg.eigvals(A)):
    axis.axhline(value, color="0.7", ls="--", lw=1)
_ = axis.set(
    xlabel="β",
    ylabel="|λ| of the MAP's A",
    title="Six states fitted to three (dashed: the true |λ|)",
)
# %% [markdown]
# With hardly any penalty six states are used, and what they have in excess fits noise. In the middle three are left. The smallest of them is shrunk the most, and a β that is too large
# loses it. Which β is right is a question for held-out patients (`select`), and `relaxed_fit` takes the shrinkage back.
#
# Two notes on the fits. A state that is switched off is white noise, which $R$ could hold as well: such fits have flat directions, and may stop at `max_iter` with $C$ and $R$ still moving where
# $A$ stands. And `Q="identity"` fixes the scales of the states: with $Q$ free too, a triangular $A$ can be rescaled towards a diagonal one without end, the infimum is not attained, and a fit says so in its warnings.
#
# ## With the basis held, entries mean something
#
# $C$ is known in this example: each of the first three channels measures one state. Held, it leaves no direction, and the zeros of $A$ are found where they are.

# %%
held = fit_map(cohort, 3, Laplace(30.0), init=truth, hold=("C",))
free = fit_map(cohort, 3, Laplace(30.0), init=truth, Q="identity")
for name, fit in (("C held", held), ("basis free (Q = I)", free)):
    print(
        f"{name}: |λ| = {np.sort(np.abs(np.linalg.eigvals(fit.params.A)))}\n{np.asarray(fit.params.A)}\n"
    )

# %% [markdown]
# Held, the zeros are where they truly are, but for one small entry too many. Free, the dynamics are much the same, and the zeros are elsewhere: with $Q = I$ the basis may only be *turned*, and the sparsest turn of this $A$ is a
# triangular one. Nobody would call those zeros wrong; they answer another question.
#
# ## Signs and order: alignment
#
# Even where no continuous direction is left, states may change sign and places: with $Q = I$ and $V_1 = I$ held, $W$ can still be any signed permutation. A sampler may visit all of them, and then an average of
# entries means nothing. Draws are therefore aligned: each gets the signed permutation that brings it nearest to the MAP (`sample_posterior` does it by itself wherever that is a symmetry of what is held). To see it,
# take draws around the true model, and scramble them:

# %%
rng = np.random.default_rng(2)
clean = A + 0.05 * rng.normal(size=(300, 3, 3))
W = np.stack([np.eye(3)[rng.permutation(3)] * rng.choice([-1, 1], 3) for _ in clean])
scrambled, C = W @ clean @ W.swapaxes(1, 2), np.asarray(truth.C) @ W.swapaxes(1, 2)
back = align(scrambled, C, truth, "signed permutations")
aligned = back @ scrambled @ back.swapaxes(1, 2)
for name, draws in (("scrambled", scrambled), ("aligned", aligned)):
    print(f"mean of the {name} draws\n{draws.mean(0)}\n")

# %% [markdown]
# ## Answers that need no basis
#
# Eigenvalues, the Markov parameters $C A^k V_1 C'$ (how a channel today speaks to another $k$ steps on), forecasts and the log-likelihood are the same in every basis. They are among the draws of every posterior.

# %% tags=["varies"]
options = {"prior": held.prior, "num_samples": 400, "num_chains": 2}
conditional = sample_posterior(jax.random.key(1), cohort, held, free=("A",), **options)
joint = sample_posterior(jax.random.key(2), cohort, held, free=("A", "V1"), **options)
lags = [1, 2]
figure, axes = plt.subplots(1, 2, figsize=(9, 3.4), layout="constrained")
for name, posterior, color in (("A sampled", conditional, "C0"), ("A and V1 sampled", joint, "C1")):
    draws = posterior["posterior"]
    modulus = draws["eigenvalue_modulus"].values.reshape(-1, 3)
    axes[0].hist(
        modulus.ravel(),
        bins=np.linspace(0.1, 1, 91),
        alpha=0.5,
        color=color,
        density=True,
        label=name,
    )
    markov = draws["markov"].values[..., lags, 1, 0].reshape(-1, len(lags))
    low, high = np.quantile(markov, (0.05, 0.95), axis=0)
    shift = -0.06 if name == "A sampled" else 0.06
    axes[1].vlines(np.array(lags) + shift, low, high, color=color, lw=5, label=f"{name}, 90%")
for value in np.abs(np.linalg.eigvals(A)):
    axes[0].axvline(value, color="k", ls="--", lw=1)
axes[0].set(
    xlabel="|λ|", ylabel="posterior density", title="Eigenvalues (dashed: truth)", yticks=[]
)
p = truth
true_markov = [(p.C @ np.linalg.matrix_power(p.A, k) @ p.V1 @ p.C.T)[1, 0] for k in lags]
axes[1].plot(lags, true_markov, "k_", ms=22, mew=1.5, label="truth")
axes[1].set(
    xlabel="lag k",
    ylabel="$(C A^k V_1 C')_{10}$",
    title="How channel 0 speaks to channel 1",
    xticks=lags,
    xlim=(0.5, 2.5),
)
axes[0].legend(fontsize=8, framealpha=1, edgecolor="none")
axes[1].legend(fontsize=8, frameon=False, loc="upper left")
print(compare_map_posterior(held, conditional, truth=A).scores.round(2))

# %% [markdown]
# The eigenvalues cover the truth either way: they are $A$'s own. The Markov parameters need $V_1$ too. With only $A$ sampled, $V_1$ stays at its estimate, whose error the blue bars do not know; orange samples both, and is wider.
# That is the price of a *conditional* posterior: it answers what $A$ may be *given* the rest of the fit.
#
# ## Exercises
#
# 1. Fit with `hold=("C",)` from `change_basis(truth, W)` as the start. What is held now, and what do the zeros mean?
# 2. Show numerically that $\lVert W A W^{-1} \rVert_1 \ge \sum |\lambda_i|$ holds for a *rotation* $A$, and that it is not attained. What is the least you can find?
# 3. In the plot of six states the second and third modulus shrink as β grows, though their states are true ones (and the first takes over a little). `relaxed_fit` takes the shrinkage back: compare the eigenvalues.
# 4. Hold `Q` at the identity and `V1` at a diagonal matrix with distinct entries. Which symmetries are left?
