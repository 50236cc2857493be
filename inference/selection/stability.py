"""Stability of the zeros of A under the bootstrap: fits to sequences drawn again with replacement."""

from typing import Any

import numpy as np
from tqdm.auto import tqdm

from ...models import Cohort
from ...models.arguments import whole
from ...models.inputs import INTERCEPT
from ..map.em import fit_map
from ..result import FitResult


def stability_selection(
    cohort: Cohort,
    fit: FitResult,
    *,
    n_bootstraps: int = 50,
    seed: int = 0,
    progress: bool = False,
    **options: Any,
) -> np.ndarray:
    """Return how often each A_ij is not zero, (l, l), when the sequences are drawn again with replacement.

    With inputs it is (l, l + p), of [A B].

    Every fit starts at `fit`, keeps its constraints, and holds C besides, so that an entry means the same in all of
    them. Takes the options of `fit_map`, which may give other constraints. Ctrl-C returns the share among the fits that
    are done.
    """
    n_bootstraps = whole("n_bootstraps", n_bootstraps)
    rng = np.random.default_rng(seed)
    l = fit.n_states
    options = {
        "init": fit.params,
        "priors": fit.priors,
        **fit.constraints.holding("C").overridden(options),
    }
    included, done = np.zeros((l, l + cohort.n_inputs)), 0
    for _ in tqdm(range(n_bootstraps), disable=not progress, desc="stability", unit="fit"):
        drawn = drawn_again(cohort, rng.integers(len(cohort), size=len(cohort)))
        again = fit_map(drawn, l, fit.prior, **options)
        if again.interrupted:
            break
        included += np.hstack([~again.zeros, ~again.zeros_B])
        done += 1
    if not done:
        raise KeyboardInterrupt("interrupted before the first bootstrap was done")
    return included / done


def drawn_again(cohort: Cohort, at: np.ndarray) -> Cohort:
    """Return the cohort of the sequences `at`, some of them more than once, with their inputs."""
    names = [name for name in cohort.inputs if name != INTERCEPT]
    of_inputs: dict[str, Any] = {}
    if names:
        columns = [cohort.inputs.index(name) for name in names]
        lengths = np.asarray(cohort.lengths)
        us = [np.asarray(cohort.u)[i, : lengths[i]][:, columns] for i in at]
        of_inputs = {"inputs": us, "input_names": names}
    drawn = [cohort.sequence(i) for i in at]
    found = Cohort.from_sequences(drawn, channels=cohort.channels, **of_inputs)
    if INTERCEPT in cohort.inputs:
        found = found.with_intercept(str(cohort.labels.intercept))
    return found
