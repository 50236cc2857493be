"""Tables of the study of coverage: intervals, verdicts, what is found, calibration, diagnostics."""

import numpy as np
import pandas as pd
from scipy.stats import rankdata

DEFAULT, SPIKES = "default", "spike and slab"


def print_tables(entries: pd.DataFrame, runs: pd.DataFrame) -> None:
    """Print all tables."""
    judged = entries[entries["hdi_low"].notna()]
    names = list(dict.fromkeys(judged["run"]))
    print(f"{runs['seed'].nunique()} cohorts\n\n95 % intervals that cover the truth (hdi)")
    by = {name: covered(judged[judged["run"] == name]) for name in names}
    first = by[names[0]]["n"].rename("entries")
    print(_text(pd.concat([first, pd.DataFrame({k: t["hdi"] for k, t in by.items()})], axis=1)))
    print("\ncentral intervals")
    print(_text(pd.DataFrame({k: t["central"] for k, t in by.items()})))
    for name in (DEFAULT, SPIKES):
        print(f"\nverdicts of {name!r}, by what the MAP says and the true size")
        print(verdicts(judged[judged["run"] == name]).to_string())
    print("\nnonzero entries found, off the diagonal")
    print(_text(found(entries)))
    print("\ninclusion probabilities of spike and slab")
    print(_text(calibration(judged)))
    print("\nerrors of A, root mean square")
    print(_text(errors(entries)))
    print("\nruns: medians, and the worst")
    print(_text(diagnostics(runs)))


def covered(t: pd.DataFrame) -> pd.DataFrame:
    """Return the shares of entries whose 95 % interval, of highest density or central, covers the truth."""
    truth, size = t["truth"], true_size(t)
    hdi = (t["hdi_low"] <= truth) & (truth <= t["hdi_high"])
    central = (t["low"] <= truth) & (truth <= t["high"])
    groups = {"nonzero": truth != 0, "zero": truth == 0}
    groups |= {k: size == k for k in sorted(set(size) - {"zero"})}
    rows = {k: [w.sum(), hdi[w].mean(), central[w].mean()] for k, w in groups.items()}
    return pd.DataFrame.from_dict(rows, orient="index", columns=["n", "hdi", "central"])


def true_size(t: pd.DataFrame) -> pd.Series:
    """Return the true size of each entry, as a word."""
    size = t["truth"].abs().round(3).map(lambda x: f"{x:g}" if x else "zero")
    return size.where(t["i"] != t["j"], "diagonal")


def verdicts(t: pd.DataFrame) -> pd.DataFrame:
    """Return the counts of verdicts, by what the MAP says and the true size."""
    says = t["map_zero"].astype(bool).map({True: "zero", False: "not zero"})
    return pd.crosstab([says.rename("MAP says"), true_size(t).rename("truth")], t["verdict"])


def auc(score: np.ndarray, true: np.ndarray) -> float:
    """Return the probability that a nonzero entry has a larger score than a zero."""
    n = true.sum()
    return float((rankdata(score)[true].sum() - n * (n + 1) / 2) / (n * (~true).sum()))


def found(entries: pd.DataFrame) -> pd.DataFrame:
    """Return how well each way finds the nonzero entries off the diagonal."""
    rows = {}
    for run, t in entries[entries["i"] != entries["j"]].groupby("run", sort=False):
        true = t["truth"].to_numpy() != 0
        if t["hdi_low"].isna().all():
            ways = {str(run): (t["map"].abs().to_numpy() > 0, t["map"].abs().to_numpy())}
        else:
            p = 1 - t["p_zero"].to_numpy(float)
            rules = {c: ~t[c].to_numpy(bool) for c in t if str(c).startswith("zero_")}
            ways = {f"{run}: {c[5:]}": (hit, None) for c, hit in rules.items()}
            ways[f"{run}: p_zero"] = p > 0.5, p
        for name, (hit, score) in ways.items():
            hits = (hit & true).sum()
            rows[name] = {
                "precision": hits / max(hit.sum(), 1),
                "recall": hits / true.sum(),
                "F1": 2 * hits / (hit.sum() + true.sum()),
                "AUC": np.nan if score is None else auc(score, true),
            }
    return pd.DataFrame(rows).T


def calibration(judged: pd.DataFrame, bins: int = 10) -> pd.DataFrame:
    """Return inclusion probabilities of spike and slab in bins, beside the share of entries that are not zero."""
    t = judged[judged["run"] == SPIKES]
    p, true = 1 - t["p_zero"].to_numpy(float), t["truth"].to_numpy() != 0
    at = np.minimum((p * bins).astype(int), bins - 1)
    rows = {
        f"{k / bins:.1f} to {(k + 1) / bins:.1f}": [
            (at == k).sum(),
            p[at == k].mean(),
            true[at == k].mean(),
        ]
        for k in range(bins)
        if (at == k).any()
    }
    table = pd.DataFrame.from_dict(rows, orient="index", columns=["n", "said", "true"])
    return table.assign(off=(table["said"] - table["true"]).abs())


def errors(entries: pd.DataFrame) -> pd.DataFrame:
    """Return the root mean square errors of A, of fits and of posterior means, by true size."""
    guess = entries["mean"].where(entries["hdi_low"].notna(), entries["map"])
    square = (guess - entries["truth"]) ** 2
    t = square.groupby([entries["run"], true_size(entries)], sort=False).mean() ** 0.5
    return t.unstack().assign(all=square.groupby(entries["run"]).mean() ** 0.5)


def diagnostics(runs: pd.DataFrame) -> pd.DataFrame:
    """Return medians of what was kept of fits and posteriors, with the worst R-hat, ESS and R."""
    by = runs.groupby("run", sort=False)
    table = by[
        ["beta", "R / truth", "least R", "r_hat", "least ESS", "gradients", "seconds"]
    ].median()
    return table.assign(
        **{
            "worst r_hat": by["r_hat"].max(),
            "worst ESS": by["least ESS"].min(),
            "most gradients": by["gradients"].max(),
            "divergences": by["divergences"].sum(),
            "not ok": by["ok"].apply(lambda x: int((x.dropna() == False).sum())),  # noqa: E712
            "worst R": by["least R"].min(),
        }
    )


def _text(table: pd.DataFrame) -> str:
    return table.to_string(float_format=lambda x: f"{x:.3f}")
