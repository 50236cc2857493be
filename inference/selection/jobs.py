"""Jobs that do not depend on each other, here one after the other or in the workers of any executor.

An executor is one of `concurrent.futures`, or anything with its `submit`: Dask's `client.get_executor()`,
`mpi4py.futures.MPIPoolExecutor`.
"""

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import as_completed
from typing import Any

import jax

# settings of JAX that a worker takes over from the process that hands out the work
SWITCHES = (
    "jax_enable_x64",
    "jax_compilation_cache_dir",
    "jax_persistent_cache_min_compile_time_secs",
    "jax_persistent_cache_min_entry_size_bytes",
)

Job = tuple[Callable[..., Any], tuple[Any, ...]]  # a function of a module, and its arguments


def switches() -> dict[str, Any]:
    """Return the settings of JAX that a result may depend on."""
    return {name: getattr(jax.config, name) for name in SWITCHES}


def results(jobs: Sequence[Job], executor: Any = None) -> Iterator[tuple[int, Any]]:
    """Yield the number and the result of each job when it is done; after an error or Ctrl-C the rest are cancelled."""
    if executor is None:
        yield from ((i, function(*arguments)) for i, (function, arguments) in enumerate(jobs))
        return
    if not callable(getattr(executor, "submit", None)):
        raise TypeError(
            f"executor is a {type(executor).__name__}, without submit(); give one of concurrent.futures, or Dask's "
            "client.get_executor()"
        )
    settings = switches()
    futures = {
        executor.submit(with_switches, settings, function, *arguments): i
        for i, (function, arguments) in enumerate(jobs)
    }
    try:
        for future in as_completed(futures):
            yield futures[future], future.result()
    finally:
        for future in futures:
            future.cancel()


def with_switches(settings: dict[str, Any], function: Callable[..., Any], *arguments: Any) -> Any:
    """Call a function with the settings of the process that asked for it."""
    for name, value in settings.items():
        if getattr(jax.config, name) != value:
            jax.config.update(name, value)
    return function(*arguments)
