"""Stability of the zeros of A under the bootstrap: fits to sequences drawn again with replacement."""

from typing import Any

import numpy as np
from tqdm.auto import tqdm

from ...models import Cohort
from ...models.arguments import whole
from ...models.inputs import refuse_inputs
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

    Every fit starts at `fit`, keeps its constraints, and holds C besides, so that an entry means the same in all of
    them. Takes the options of `fit_map`, which may give other constraints. Ctrl-C returns the share among the fits that
    are done.
    """
    refuse_inputs(cohort, "stability_selection")
    n_bootstraps = whole("n_bootstraps", n_bootstraps)
    rng = np.random.default_rng(seed)
    sequences, l = cohort.sequences(), fit.n_states
    options = {
        "init": fit.params,
        "priors": fit.priors,
        **fit.constraints.holding("C").overridden(options),
    }
    included, done = np.zeros((l, l)), 0
    for _ in tqdm(range(n_bootstraps), disable=not progress, desc="stability", unit="fit"):
        drawn = [sequences[i] for i in rng.integers(len(sequences), size=len(sequences))]
        again = fit_map(
            Cohort.from_sequences(drawn, channels=cohort.channels),
            l,
            fit.prior,
            **options,
        )
        if again.interrupted:
            break
        included += ~again.zeros
        done += 1
    if not done:
        raise KeyboardInterrupt("interrupted before the first bootstrap was done")
    return included / done
