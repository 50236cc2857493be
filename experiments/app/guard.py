"""What surrounds every command: one command at a time in a folder, and errors as one line."""

import functools
import os
import sys
import traceback
from pathlib import Path

import typer

_held: dict[Path, int] = {}  # folder -> descriptor that has its lock

# what a user can mend: bad input, files, memory, numbers that overflow
_USERS = (ValueError, TypeError, OSError, ImportError, ArithmeticError, MemoryError)


def guarded(command):
    """Return the command with its errors as one line and an exit code: 2 for what the user can mend, 130 for Ctrl-C.

    Any other error is a defect of ours: one line, exit code 1, and the traceback if SPARSE_LDS_TRACEBACK is set.
    """

    @functools.wraps(command)
    def run(*args, **kwargs):
        try:
            return command(*args, **kwargs)
        except KeyboardInterrupt:
            raise _end("interrupted", 130) from None
        except _USERS as error:
            raise _end(str(error) or type(error).__name__, 2) from None
        except (typer.Exit, typer.Abort):
            raise
        except Exception as error:
            text = f"a defect of sparse-lds, {type(error).__name__}: {error}"
            raise _end(
                f"{text} (SPARSE_LDS_TRACEBACK=1 shows where; please report it)", 1
            ) from None
        finally:
            release()

    return run


def _end(text: str, code: int) -> typer.Exit:
    """Print an error as one line, and return the exit with its code."""
    if os.environ.get("SPARSE_LDS_TRACEBACK"):
        traceback.print_exc()
    print("sparse-lds: " + " ".join(text.split()), file=sys.stderr)
    return typer.Exit(code)


def claim(folder: Path) -> None:
    """Lock the folder until this command ends; raise if another command has it.

    The lock is the system's own and ends with the process, however it ends; no file is left behind.
    """
    folder = folder.resolve()
    if folder in _held:
        return
    try:
        import fcntl
    except ImportError:  # Windows: two commands in one folder are not told apart
        return
    place = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(place, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(place)
        raise OSError(
            f"another sparse-lds command is at work in {str(folder)!r}; wait for it to end, or give another folder"
        ) from None
    except OSError as error:  # file systems that cannot lock
        os.close(place)
        text = f"no lock on {str(folder)!r} ({error.strerror}); run one command at a time in it"
        print(f"sparse-lds: {text}", file=sys.stderr)
        return
    _held[folder] = place


def release() -> None:
    """Unlock all folders that this command had locked."""
    while _held:
        os.close(_held.popitem()[1])
