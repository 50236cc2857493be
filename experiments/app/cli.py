"""The command line `sparse-lds`: `run` and `demo` to start with, the steps of a run, and the paper's experiment."""

import os
from importlib.metadata import version

from . import commands, commands_of_the_paper, commands_on_disk
from .application import app, progress_in_lines
from .workspace import set_up

__all__ = ["app", "commands", "commands_of_the_paper", "commands_on_disk", "main"]


def main() -> None:
    """Run the command line."""
    # matrices are small: threads of BLAS wait for each other longer than they work
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    # jaxlib 0.10 compiles our programs in a third of the time by its older emitters, to kernels as fast; other versions
    # end the process at a flag that they do not know
    if version("jaxlib").startswith("0.10."):
        own = os.environ.get("XLA_FLAGS", "")
        os.environ["XLA_FLAGS"] = f"--xla_cpu_use_fusion_emitters=false {own}".strip()
    progress_in_lines()
    set_up()
    app()


if __name__ == "__main__":
    main()
