"""Arguments that many functions check in the same way, with an error that names the argument and its value."""

from typing import Any

import numpy as np


def whole(name: str, value: Any, least: int = 1, most: int | None = None) -> int:
    """Return a whole number, or raise an error that says which it may be.

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
    """Return a number between 0 and 1, both excluded, or raise an error."""
    if not 0 < value < 1:
        raise ValueError(f"{name} is {value}; it must be between 0 and 1")
    return float(value)
