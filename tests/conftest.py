"""For all tests: 64-bit arithmetic, a fixed Hypothesis profile, and the record of errors."""

import os
import tempfile
from importlib.metadata import version

# Most of the tests' time is XLA's compiler: its cheapest settings, before JAX is imported. Rounding may differ. A flag
# that a version of XLA does not know ends the process: the second works in jaxlib 0.10, and not in 0.12.
os.environ["XLA_FLAGS"] = " ".join(
    [os.environ.get("XLA_FLAGS", ""), "--xla_backend_optimization_level=0"]
    + ["--xla_cpu_use_fusion_emitters=false"] * version("jaxlib").startswith("0.10.")
)

import jax
import numpy as np
import pytest
import shapes
from hypothesis import settings

jax.config.update("jax_enable_x64", True)

# Programs are forgotten after each module: those that another one needs again come from disk, for each worker its own.
_programs = tempfile.TemporaryDirectory(prefix="sparse-lds-tests-")
jax.config.update("jax_compilation_cache_dir", _programs.name)
jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.1)
jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)

shapes.check_package()
settings.register_profile("fixed", derandomize=True, deadline=None, database=None)
settings.load_profile("fixed")

_ERRORS = "largest relative errors"


def relative_error(actual, wanted) -> float:
    """Largest difference, relative to the largest entry wanted (absolute if all of them are 0)."""
    actual, wanted = np.asarray(actual, float), np.asarray(wanted, float)
    assert actual.shape == wanted.shape
    scale = np.abs(wanted).max(initial=0.0)
    return float(np.abs(actual - wanted).max(initial=0.0) / (scale if scale > 0 else 1.0))


@pytest.fixture(scope="module", autouse=True)
def forget_compiled_programs():
    """Each holds some of the memory maps that a process may have; thousands of programs crash the compiler."""
    yield
    jax.clear_caches()


@pytest.fixture
def close(record_property):
    """close(what, actual, wanted, rtol): assert, and keep the error for the summary.

    `what` is a group and a detail ("filter mean"); the summary has a line for each group.
    """
    found: dict[str, list] = {}  # what -> [largest error, comparisons]
    record_property(_ERRORS, found)

    def check(what, actual, wanted, rtol=1e-9):
        error = relative_error(actual, wanted)
        assert error <= rtol, f"{what}: relative error {error:.2e} is above {rtol:.0e}"
        worst, count = found.get(what, (0.0, 0))
        found[what] = [max(worst, error), count + 1]

    return check


def pytest_terminal_summary(terminalreporter):
    groups: dict[str, dict[str, list]] = {}
    for report in terminalreporter.getreports("passed"):
        for name, found in report.user_properties:
            if name == _ERRORS:
                for what, (error, count) in found.items():
                    fields = groups.setdefault(what.split()[0], {})
                    worst, total = fields.get(what, (0.0, 0))
                    fields[what] = [max(worst, error), total + count]
    if groups:
        terminalreporter.section("largest relative errors")
    for group, fields in groups.items():
        what = max(fields, key=lambda k: fields[k][0])
        problems = max(count for _, count in fields.values())
        terminalreporter.line(f"{group:<24} {fields[what][0]:.1e}  ({problems} problems; {what})")
