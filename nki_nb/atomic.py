"""Files that are there whole or not at all."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO


@contextmanager
def whole(path: str | Path) -> Iterator[BinaryIO]:
    """A file to write, which takes its name when the block ends; after an error nothing is changed.

    What exists and is no regular file, such as ``/dev/stdout``, is written to directly.

    Raises:
        OSError: the file cannot be written; it carries ``path``.
    """
    target = Path(path)
    if target.exists() and not target.is_file():
        with target.open("wb") as file:
            yield file
        return
    draft = target.with_name(f".{target.name}.{os.getpid()}.part")
    try:
        file = draft.open("wb")
    except OSError as error:
        raise type(error)(error.errno, error.strerror, str(target)) from None
    try:
        with file:
            yield file
        draft.replace(target)
    except BaseException:
        draft.unlink(missing_ok=True)
        raise
