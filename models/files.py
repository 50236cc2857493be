"""Files that appear whole or not at all."""

import os
import uuid
from pathlib import Path


def write_whole(path: str | os.PathLike, content: bytes | str) -> Path:
    """Write a file under another name, then rename it: an interruption leaves an earlier file as it was."""
    path = Path(path)
    # A name of its own, and not tempfile's, whose files only their owner may read.
    part = path.with_name(f".{path.name}.{uuid.uuid4().hex}.part")
    try:
        with open(part, "xb") as file:
            file.write(content.encode() if isinstance(content, str) else content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(part, path)
    finally:
        part.unlink(missing_ok=True)
    return path
