"""Checks of whole numbers and probabilities given as arguments; an error names the argument and its value."""

from typing import Any

import numpy as np


def whole(name: str, value: Any, least: int = 1, most: int | None = None) -> int:
    """Return `value` as an int, or raise an error that says which whole numbers are allowed.

    >>> whole("horizon", 3.0)
    3
    """
    try:
        found = int(value)
        right = found == value and found >= least and (most is None or found <= most)
    except (TypeError, ValueError, OverflowError):
        found, right = 0, False
    if isinstance(value, bool | np.bool_) or not right:
        bound = f"at least {least}" if most is None else f"from {least} to {most}"
        raise ValueError(f"{name} is {value!r}; it must be a whole number, {bound}")
    return found


def probability(name: str, value: Any) -> float:
    """Return `value` as a float; raise unless it lies between 0 and 1, both excluded."""
    if not 0 < value < 1:
        raise ValueError(f"{name} is {value}; it must be between 0 and 1")
    return float(value)
