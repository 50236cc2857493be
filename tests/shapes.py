"""Shapes that the fields of NamedTuples declare (jaxtyping), checked while the tests run."""

import importlib
import pkgutil
import sys
from typing import get_type_hints

from jaxtyping import jaxtyped

import sparse_lds.experiments
import sparse_lds.inference
import sparse_lds.models

CHECKED: list[str] = []  # the NamedTuples whose shapes are checked


def check_package() -> None:
    """Have the fields of all NamedTuples of the package checked."""
    for package in (sparse_lds.models, sparse_lds.inference, sparse_lds.experiments):
        for found in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            module = importlib.import_module(found.name)
            for item in vars(module).values():
                if hasattr(item, "_fields") and item.__module__ == found.name:
                    check_fields(item)


def check_fields(cls) -> None:
    """Have jaxtyping check the shapes of a NamedTuple's fields whenever the package makes one.

    Not where JAX or a test does: the one puts placeholders in, the other errors on purpose.
    """
    shapes = {k: v for k, v in get_type_hints(cls).items() if hasattr(v, "dim_str")}
    if not shapes:
        return
    make = cls.__new__

    def checked(cls, *args, **kwargs):
        made = make(cls, *args, **kwargs)
        if sys._getframe(1).f_globals.get("__name__", "").startswith("sparse_lds."):
            with jaxtyped("context"):
                for name, wanted in shapes.items():
                    value = getattr(made, name)
                    found = f"{cls.__name__}.{name} is {getattr(value, 'shape', type(value))}"
                    assert isinstance(value, wanted), f"{found}, not ({wanted.dim_str})"
        return made

    cls.__new__ = checked
    CHECKED.append(cls.__name__)
