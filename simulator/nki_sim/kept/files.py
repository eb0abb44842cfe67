"""The folder: files that are whole or not there, whoever writes at the same time, and never more than a fixed size."""

from __future__ import annotations

import contextlib
import os
import sys
import warnings
from pathlib import Path

SWITCH, VERBOSE, PLACE = "NKI_ENABLE_TRACE_CACHE", "NKI_TRACE_CACHE_VERBOSE", "NKI_TRACE_CACHE_URL"
MAGIC = b"nki-nb kernel 1\n"
_SUM = 32
"""Bytes of a SHA-256."""
MOST_BYTES = 1 << 29
MOST_OF_ONE = 1 << 26


class Kept:
    """A folder of specialised kernels.

    Args:
        folder: made when the first kernel is kept, for this user alone.
    """

    def __init__(self, folder: Path):
        self.folder = folder
        self._full = False

    def load(self, name: str, kernel: str) -> bytes | None:
        """The content of a file, ``None`` where there is none that is whole and this user's own."""
        path = self._path(name)
        try:
            with path.open("rb") as file:
                if hasattr(os, "getuid") and os.fstat(file.fileno()).st_uid != os.getuid():
                    self.say(f"MISS {kernel}: {path} is another user's")
                    return None
                data = file.read()
        except OSError:
            self.say(f"MISS {kernel}")
            return None
        content = data[len(MAGIC) + _SUM :]
        if not data.startswith(MAGIC) or _sum(content) != data[len(MAGIC) : len(MAGIC) + _SUM]:
            self.forget(name, kernel, "is not whole")
            return None
        return content

    def hit(self, name: str, kernel: str) -> None:
        """A kernel came from its file: say so, and note that it is in use."""
        self.say(f"HIT {kernel}")
        with contextlib.suppress(OSError):
            os.utime(self._path(name))

    def forget(self, name: str, kernel: str, why: str) -> None:
        """Take a file away that cannot be used."""
        self.say(f"MISS {kernel}: {self._path(name)} {why}")
        with contextlib.suppress(OSError):
            self._path(name).unlink()

    def save(self, name: str, kernel: str, content: bytes) -> None:
        """Keep a kernel. Where the disk is full or the folder cannot be written, warn once and go on."""
        if self._full or len(content) > MOST_OF_ONE:
            return
        try:
            self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._write(self._path(name), MAGIC + _sum(content) + content)
            self._make_room()
        except OSError as error:
            self._full = True
            warnings.warn(f"{SWITCH}: kernels are not kept in {self.folder}: {error.strerror or error}", stacklevel=2)
            return
        self.say(f"KEPT {kernel}")

    @staticmethod
    def _write(path: Path, data: bytes) -> None:
        """Write next to the file and put it in its place at once: readers and other writers see all of it or nothing."""
        import tempfile  # 15 ms, which %load_ext need not take

        handle, made = tempfile.mkstemp(dir=path.parent, prefix=".", suffix=".part")
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(data)
            os.replace(made, path)
        except BaseException:
            with contextlib.suppress(OSError):
                os.unlink(made)
            raise

    def _make_room(self) -> None:
        """Take away what was not used for longest, beyond the folder's size."""
        found = []
        for path in self.folder.glob("*.kernel"):
            with contextlib.suppress(OSError):  # another process took it away
                seen = path.stat()
                found.append((seen.st_mtime_ns, seen.st_size, path))
        total = sum(size for _, size, _ in found)
        for _, size, path in sorted(found):
            if total <= MOST_BYTES:
                return
            total -= size
            with contextlib.suppress(OSError):
                path.unlink()

    def _path(self, name: str) -> Path:
        return self.folder / f"{name}.kernel"

    @staticmethod
    def say(words: str) -> None:
        """A line on standard error, where ``NKI_TRACE_CACHE_VERBOSE=1`` asks for it."""
        if os.environ.get(VERBOSE) == "1":
            print(f"NKI trace cache: {words}", file=sys.stderr)


def _sum(content: bytes) -> bytes:
    import hashlib  # where the layer is on

    return hashlib.sha256(content).digest()


class Layer:
    """The folder in use, if any: ``NKI_ENABLE_TRACE_CACHE`` decides, and ``default`` where that is not set."""

    def __init__(self) -> None:
        self.default = False
        """Whether kernels are kept without being asked to: PyTorch's integration turns it on, as torch-neuronx does."""
        self._made: dict[Path, Kept] = {}
        self._warned = False

    def __call__(self) -> Kept | None:
        asked = os.environ.get(SWITCH)
        if asked == "0" or (asked != "1" and not self.default):
            return None
        folder = _folder()
        found = self._made.get(folder)
        if found is None:
            found = self._made[folder] = Kept(folder)
        if asked == "1" and not self._warned:
            self._warned = True
            what = "specialised kernels are kept for other processes; a value that a kernel reads from elsewhere (a file, the"
            warnings.warn(f"{SWITCH}=1: {what} environment) is not noticed. {folder}", stacklevel=5)
        return found


def _folder() -> Path:
    place = os.environ.get(PLACE, "")
    if place:
        return Path(place.removeprefix("file://"))
    home = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(home) / "nki-nb" / "kernels"


layer = Layer()
