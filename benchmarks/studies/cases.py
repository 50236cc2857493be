"""Cases that have a seed each: run with a time limit, kept in a file line by line, and gone on with after a stop."""

import json
import signal
import warnings
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pandas as pd

CLEAR = (ValueError, TypeError, OSError, ImportError, ArithmeticError, MemoryError)
SECONDS = 180  # of processor time, after which a case hangs; a busy machine counts as none
EVERY = 500  # cases after which compiled programs are forgotten: they use memory maps, of which there are 65,530


def outcome(case: Callable[..., str], *args: Any) -> str:
    """Run a case: what it returns, "clear error", "traceback: …" or "hang"."""

    def late(*_):
        raise TimeoutError("hang")

    before = signal.signal(signal.SIGPROF, late)
    signal.setitimer(signal.ITIMER_PROF, SECONDS)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return case(*args)
    except TimeoutError:
        return "hang"
    except np.linalg.LinAlgError as error:  # a ValueError, but none that a user can read
        return f"traceback: {error!r}"
    except CLEAR as error:
        return "clear error" if len(str(error)) > 15 else f"traceback: {error!r}"
    except Exception as error:
        return f"traceback: {error!r}"[:300]
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)


def kept(
    file: Path, seeds: Iterable[int], run: Callable[[int], dict], report: bool = False
) -> pd.DataFrame:
    """Run the cases that the file has not, and return all; each is written when it is done.

    With `report` none is run, and those that are there are returned.
    """
    file.parent.mkdir(parents=True, exist_ok=True)
    lines = file.read_text().splitlines() if file.exists() else []
    done = {row["seed"]: row for row in map(json.loads, lines)}
    seeds = [s for s in seeds if s in done or not report]
    with open(file, "a") as out:
        for n, seed in enumerate([s for s in seeds if s not in done], 1):
            done[seed] = run(seed)
            out.write(json.dumps(done[seed]) + "\n")
            out.flush()
            if n % EVERY == 0:
                print(f"{file.stem}: {len(done)} done", flush=True)
                jax.clear_caches()
    return pd.DataFrame([done[s] for s in seeds])


def sound(fit: Any) -> bool:
    """Tell whether everything in a fit is finite, and its covariances are definite."""
    finite = all(np.isfinite(np.asarray(x)).all() for x in (*fit.params, fit.objective))
    S = fit.params.Q, fit.params.R, fit.params.V1
    return bool(finite and all(np.linalg.eigvalsh(np.asarray(x))[0] >= 0 for x in S))
