"""Diagnostics of posterior draws, in words: whether entries, and quantities that no basis changes, can be trusted."""

from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from . import arviz_compat as az
from .basis_free import ACTIVE
from .constant import frozen_chains, still_problems

RHAT, ESS, BFMI = 1.01, 400, 0.3  # Vehtari et al. (2021); Betancourt (2016)
FAR = 1.05  # an R-hat that more draws alone will hardly mend
CONDITIONAL = "Only a part of what the fit learned was sampled: intervals are conditional on the fit, and too narrow."
_BASIS_FREE = ("eigenvalue_modulus", "spectral_radius", "markov", "log_likelihood_total")


class Verdict(NamedTuple):
    """The verdict on posterior draws; `print` shows it in words."""

    ok: bool
    text: str
    table: pd.DataFrame  # a row for each scalar quantity: r_hat, ess_bulk, ess_tail, basis_free

    def __str__(self) -> str:
        return self.text


def diagnose(posterior: Any) -> Verdict:
    """Judge the result of `sample_posterior` by R-hat, bulk and tail ESS, divergences, tree depth and E-BFMI."""
    data, stats = az.group(posterior, "posterior"), az.group(posterior, "sample_stats")
    table = _table(data)
    if table.empty:
        return Verdict(
            False, "The chains did not move: all draws are the same. Try target_accept=0.95.", table
        )
    n_draws = data.sizes["draw"]
    free = str(data.attrs.get("free", "")).split()
    hold = "Hold C, or use fewer states." if "C" in free else "Use fewer states."
    frozen = frozen_chains(data)
    problems, severe = _mixing_problems(table, data.sizes["chain"], n_draws, hold, bool(frozen))
    problems = still_problems(data, frozen, _n_channels(posterior)) + problems
    problems += _sampler_problems(data, stats, hold)
    problems += _model_problems(data)
    l, d = int(data.attrs.get("n_states", 0)), _n_channels(posterior)
    if severe and d and l > d:
        problems.append(
            f"There are {l} states and {d} channels: A is determined by C A^k alone, weakly where l is well above d, "
            "and its posterior may have several modes. Compare a fit with fewer states (az.compare on their "
            "leave-one-sequence-out scores)."
        )
    if data.attrs.get("interrupted"):
        problems.append(f"The run was interrupted after {n_draws} draws of each chain.")
    lines = [f"  - {problem}" for problem in problems]
    rest = (
        ["Not to be trusted as it is:", *lines]
        if problems
        else ["Nothing speaks against these draws.", *_few(table)]
    )
    text = [_head(table, data, stats), *rest, *_notes(data.attrs)]
    return Verdict(not problems, "\n".join(text), table)


def limits(total: int) -> tuple[float, float]:
    """Return the largest R-hat and the least ESS that are sound for so many draws of all chains together.

    Both are noisy where draws are few. With these limits 50 independent normal quantities raise a false alarm in 4 % of
    runs of 4 chains of 50 draws, and in less than 1 % of runs of 100 or 250 draws (200 simulated runs each). From 1100
    draws on an ESS of 400 is asked for.
    """
    return RHAT + 10 / total, min(ESS, max(0.2 * total, 0.4 * (total - 100)))


def _few(table: Any) -> list[str]:
    """Return a sentence if there are few draws, though nothing is wrong with them."""
    least = table[["ess_bulk", "ess_tail"]].min(axis=None)
    if least >= ESS:
        return []
    return [
        f"There are few draws, however (ESS {least:.0f}; {ESS} is usual): the ends of intervals are rough, and only "
        "gross faults can be seen. Try more draws."
    ]


def _notes(attrs: Any) -> list[str]:
    """Return what is to be known of sound draws, too: the prior, and what was held."""
    prior = attrs.get("prior")
    notes = [f"The prior of A was {prior}."] if prior else []
    return [*notes, CONDITIONAL] if attrs.get("conditional") else notes


def _head(table: Any, data, stats) -> str:
    """Return the sentence of numbers at the head of a verdict."""
    n_chains = data.sizes["chain"]
    rhat = f"R-hat at most {table['r_hat'].max():.3f}" if n_chains > 1 else "no R-hat"
    return (
        f"{n_chains} chains of {data.sizes['draw']} draws: {rhat}, ESS at least "
        f"{table['ess_bulk'].min():.0f} (bulk) and {table['ess_tail'].min():.0f} (tail), "
        f"{int(stats['diverging'].sum())} divergences, {float(stats['n_steps'].mean()):.0f} gradients a draw, "
        f"E-BFMI at least {az.bfmi(stats).min():.2f}."
    )


def _mixing_problems(
    table: Any, n_chains: int, n_draws: int, hold: str, frozen: bool
) -> tuple[list[str], bool]:
    """Return the problems that R-hat and ESS show, and whether chains that move are in different places."""
    most, least = limits(n_chains * n_draws)
    is_free = table["basis_free"].to_numpy()
    entries, free = table[~is_free], table[is_free]
    more = " Try more draws, and a longer warm-up."

    def bad(part: Any) -> Any:
        enough = part[["ess_bulk", "ess_tail"]].min(axis=1, skipna=False) >= least
        mixed = (part["r_hat"] <= most) | (n_chains < 2)
        return part[~(enough & mixed)]  # NaN counts as bad

    def far(part: Any) -> bool:
        """Tell whether chains are in different places, which more draws do not mend; False below 100 draws."""
        return n_draws >= 100 and not frozen and bool((part["r_hat"] > FAR).any())

    def longer(part: Any) -> str:
        """Advise more draws, unless chains stand still: of those R-hat is infinite or none at all."""
        still = n_chains > 1 and not np.isfinite(part["r_hat"]).all()
        return "" if frozen or still else more

    bad_entries, bad_free = bad(entries), bad(free)
    problems: list[str] = []
    if n_chains < 2:
        problems.append(
            "There is one chain only, so R-hat cannot see a second mode. Try num_chains=4."
        )
    if len(bad_entries):
        what = "entries of the parameters"
        problems.append(_unmixed(bad_entries, len(entries), what, most, least))
        if not far(bad_entries):
            problems[-1] += longer(bad_entries)
        elif not len(bad_free):
            problems[-1] += (
                " What no change of basis alters has mixed: eigenvalues, Markov parameters and forecasts can be "
                f"used, single entries of A cannot. {hold}"
            )
    if len(bad_free):
        what = "basis-free quantities"
        problems.append(_unmixed(bad_free, len(free), what, most, least))
        problems[-1] += (
            f" Chains in different places mean several modes, which more draws will not join. {hold}"
            if far(bad_free)
            else longer(bad_free)
        )
    return problems, far(bad_entries) or far(bad_free)


def _table(data) -> pd.DataFrame:
    """Return the diagnostics of every scalar that varies."""
    # parts of pairs, counts, γ of spike and slab, and β where it was drawn afterwards, given A
    skip = ["eigenvalue_real", "eigenvalue_imag", "active_states", "included", "beta"]
    spikes = "included" in data
    # and the sites that a hierarchical A is computed from
    skip += str(data.attrs.get("auxiliary", "")).split()
    data = data.drop_vars([name for name in skip if name in data])
    found = {
        "r_hat": az.rhat(data),
        "ess_bulk": az.ess(data, "bulk"),
        "ess_tail": az.ess(data, "tail"),
    }
    rows, n_chains = [], data.sizes["chain"]
    for name, variable in data.data_vars.items():
        spread = np.ptp(variable.values, axis=(0, 1))
        values = {k: np.asarray(ds[name].values, float) for k, ds in found.items()}
        for at in np.ndindex(spread.shape):
            if spread[at] == 0:
                continue  # a forced zero, for example; `constant.py` looks for others
            if spikes and name == "A" and n_chains > 1 and np.isnan(values["r_hat"][at]):
                continue  # but for a few draws at the centre: too few for ranks
            where = f"[{', '.join(map(str, at))}]" if at else ""
            rows.append(
                {"quantity": f"{name}{where}", **{k: float(v[at]) for k, v in values.items()}}
                | {"basis_free": name in _BASIS_FREE}
            )
    columns = ["quantity", *found, "basis_free"]
    return pd.DataFrame(rows, columns=columns).set_index("quantity")


def _unmixed(bad: Any, n: int, what: str, most: float, least: float) -> str:
    """Return a sentence on the quantities that have not mixed, and the worst of them."""
    worst = bad["r_hat"].idxmax() if bad["r_hat"].max() > most else bad["ess_bulk"].idxmin()
    row = bad.loc[worst]
    if bad["r_hat"].max() <= most:  # the chains agree
        return (
            f"{len(bad)} of {n} {what} have too few draws that count: an ESS of {least:.0f} is wanted, and the least "
            f"is {min(row['ess_bulk'], row['ess_tail']):.0f}, of {worst}. Draw more."
        )
    rhat = "" if np.isnan(row["r_hat"]) else f"R-hat {row['r_hat']:.3f}, "
    return (
        f"{len(bad)} of {n} {what} have not mixed (R-hat above {most:.3g} or ESS below {least:.0f}); the worst is "
        f"{worst}, {rhat}ESS {min(row['ess_bulk'], row['ess_tail']):.0f}."
    )


def _sampler_problems(data, stats, hold: str) -> list[str]:
    """Return the problems that NUTS itself shows: divergences, full trees, low E-BFMI."""
    problems = []
    diverging = int(stats["diverging"].sum())
    if diverging:
        problems.append(
            f"{diverging} of {stats['diverging'].size} transitions diverged: parts of the posterior were not "
            "reached. Try target_accept=0.95."
        )
    deepest = int(data.attrs.get("max_tree_depth", 10))
    full = float((stats["n_steps"].values >= 2**deepest - 1).mean())
    if full > 0.01:
        problems.append(
            f"{full:.0%} of the trees were as deep as allowed (max_tree_depth = {deepest}): directions that the data "
            f"do not determine. {hold}"
        )
    bfmi = az.bfmi(stats)
    if (bfmi < BFMI).any():
        problems.append(
            f"E-BFMI is {bfmi.min():.2f}, below {BFMI}: energies are explored slowly, as with heavy tails. Try more "
            "draws, or a prior with lighter tails."
        )
    return problems


def _model_problems(data) -> list[str]:
    """Return the problems of the model and the fit, which no sampling would mend."""
    problems = []
    if not data.attrs.get("fit_converged", 1):
        problems.append(
            f"The fit that these draws are around had not converged ({data.attrs.get('fit_reason')}): what is held is "
            "held at the wrong values."
        )
    left = int(data.attrs.get("directions_left", 0))
    if left:
        problems.append(
            f"{left} direction{'s' if left > 1 else ''} of change of basis {'are' if left > 1 else 'is'} left open by "
            "the likelihood (see identifiability_report): along them the entries of A follow from the prior. "
            "Eigenvalues, markov and forecasts are the same in every basis, and may be read."
        )
    if "active_states" in data:
        l, active = int(data.attrs.get("n_states", 0)), data["active_states"].values
        if l > active.max():
            low, high = int(active.min()), int(active.max())
            span = f"{low}" if low == high else f"{low} to {high}"
            problems.append(
                f"Of the {l} states no draw uses more than {high} ({span} eigenvalues of A have a modulus of at least "
                f"{ACTIVE}): rows and columns of the others follow from the prior. Fit {high} states."
            )
    return problems


def _n_channels(posterior: Any) -> int:
    """Return the number of channels, 0 if unknown."""
    return int(az.group(posterior, "observed_data").sizes.get("channel", 0))
