"""Text that goes into HTML and SVG: escaped, and free of characters that XML does not allow."""

from __future__ import annotations

import html
import re

_FORBIDDEN = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def escape(text: object) -> str:
    """Text for an element or an attribute, safe in HTML and in XML."""
    return html.escape(_FORBIDDEN.sub("\ufffd", str(text)), quote=True)


def clip(text: str, width: int) -> str:
    """At most ``width`` characters, the last an ellipsis where something was cut."""
    return text if len(text) <= width else text[: width - 1] + "…"
