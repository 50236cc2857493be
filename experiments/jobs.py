"""The jobs of the command line, under the name by which notebooks of version 0.1 import them."""

from .app.jobs import levels_of

__all__ = ["levels_of"]
