"""What is kept for the next time, as much of it as may be: what was not asked for longest goes first."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Collection
from typing import Any, Generic, TypeVar

V = TypeVar("V")


class Recent(Generic[V]):
    """Values by key, for several threads.

    Args:
        fits: whether so many values may be kept together; always true of none.
    """

    def __init__(self, fits: Callable[[Collection[V]], bool]):
        self._fits = fits
        self._entries: OrderedDict[Any, V] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, key: Any) -> V | None:
        """The value of a key, which is now the one asked for last."""
        with self._lock:
            found = self._entries.get(key)
            if found is not None:
                self._entries.move_to_end(key)
            return found

    def put(self, key: Any, value: V) -> None:
        """Keep a value, and let go of others where there are too many."""
        with self._lock:
            self._entries[key] = value
            self._entries.move_to_end(key)
            while not self._fits(self._entries.values()):
                self._entries.popitem(last=False)

    def clear(self) -> None:
        """Forget everything."""
        with self._lock:
            self._entries.clear()

    def __len__(self) -> int:
        return len(self._entries)
