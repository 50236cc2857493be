"""A short run of `python benchmarks fuzz`: seeds drawn by Hypothesis, with nothing wrong, no traceback, no hang."""

import importlib.util
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

FILE = Path(__file__).parent.parent / "benchmarks" / "studies" / "fuzz.py"
SPEC = importlib.util.spec_from_file_location("fuzz", FILE)
assert SPEC is not None and SPEC.loader is not None
fuzz = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(fuzz)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("fuzz")


@given(seed=st.integers(0, 10**6))
@settings(max_examples=40)
def test_bad_inputs_are_clear_errors(folder, seed):
    found = fuzz.bad_input(seed, folder)
    assert found["outcome"] in ("accepted", "clear error"), found


def test_wrong_results_and_tracebacks_would_be_seen(folder):
    """The harness itself: an unexpected error, a wrong result and a hang are counted as such."""

    def fails():
        raise KeyError("x")

    def hangs():
        while True:
            pass

    assert fuzz.outcome(fails).startswith("traceback")
    assert fuzz.outcome(lambda: "wrong") == "wrong"
    fuzz.SECONDS, before = 1, fuzz.SECONDS
    try:
        assert fuzz.outcome(hangs) == "hang"
    finally:
        fuzz.SECONDS = before


@pytest.mark.parametrize("seed", [1, 17])  # of one shape, so that one program serves both
def test_random_fits_are_sound(seed):
    row = fuzz.random_fit(seed, max_iter=60)
    assert row["outcome"] == "fit", row
    assert not (row["nan"] or row["fall"] or row["false convergence"]), row
