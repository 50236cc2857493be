"""The command line `sparse-lds`: `run` and `demo` to start with, the steps of a run, and the paper's experiment."""

import os

from . import commands, commands_of_the_paper, commands_on_disk
from .application import app, progress_in_lines
from .workspace import set_up

__all__ = ["app", "commands", "commands_of_the_paper", "commands_on_disk", "main"]


def main() -> None:
    """Run the command line."""
    # matrices are small: threads of BLAS wait for each other longer than they work
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    progress_in_lines()
    set_up()
    app()


if __name__ == "__main__":
    main()
