"""Lines that one process writes and another believes: numbered, and signed with a key that both hold."""

from __future__ import annotations

import hmac


def signed(key: str, number: int, text: str) -> str:
    """A line: the signature of its number and text, then the text."""
    return f"{_signature(key, number, text)} {text}"


def opened(key: str, number: int, line: str) -> str | None:
    """The text of a line that was signed with this key and number, else ``None``."""
    signature, _, text = line.partition(" ")
    return text if hmac.compare_digest(signature.encode(), _signature(key, number, text).encode()) else None


def _signature(key: str, number: int, text: str) -> str:
    return hmac.new(key.encode(), f"{number} {text}".encode(), "sha256").hexdigest()
