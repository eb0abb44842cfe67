"""Counts and sizes in words."""

from __future__ import annotations


def kib(size: int) -> str:
    """Bytes as KiB with one decimal."""
    return f"{size / 1024:.1f}"


def human_bytes(size: int) -> str:
    """Bytes with the unit that fits."""
    for limit, unit in ((1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")):
        if size >= limit:
            return f"{size / limit:.1f} {unit}"
    return plural(size, "byte")


def plural(count: int, noun: str) -> str:
    """A count with its noun."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"
