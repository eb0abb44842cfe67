"""Small SVG drawings: presentation attributes only, escaped text, the same bytes every time.

No style sheets, scripts, ids or fonts from elsewhere, so that a drawing survives nbviewer, GitHub and nbconvert; it
brings its own light ground, so that it reads on a dark page as well.
"""

from __future__ import annotations

from collections.abc import Sequence

from nki_nb.markup import escape

INK, MUTED, RULE, GROUND = "#1f2430", "#6b7280", "#c9ced6", "#fbfcfd"
NOW = "#d55e00"
"""The one warm colour: the peak, the limit, the thing looked at."""

MONO, SANS = "DejaVu Sans Mono, Menlo, Consolas, monospace", "DejaVu Sans, Helvetica, Arial, sans-serif"
MONO_WIDTH = 0.605
"""Width of a monospaced character, in font sizes."""

WIDTH, MARGIN = 820.0, 16.0
"""Of the pictures of a run."""

Attributes = dict[str, "str | float | None"]


class Drawing:
    """A picture under construction; the origin is its upper left corner, units are pixels."""

    def __init__(self, width: float, height: float, title: str):
        self.width, self.height, self.title = width, height, title
        self.parts: list[str] = []

    def rect(
        self,
        box: tuple[float, float, float, float],
        *,
        fill: str = "none",
        stroke: str = "none",
        dashed: bool = False,
        radius: float = 0,
        title: str = "",
    ) -> None:
        """A rectangle ``(x, y, width, height)``; ``title`` shows when pointed at."""
        x, y, width, height = box
        shape: Attributes = {"x": x, "y": y, "width": width, "height": height, "rx": radius or None}
        shape |= {"fill": fill, "stroke": stroke, "stroke-dasharray": "4 3" if dashed else None}
        inside = f"<title>{escape(title)}</title>" if title else ""
        self.parts.append(_element("rect", shape, inside))

    def line(self, start: tuple[float, float], end: tuple[float, float], *, stroke: str = RULE, dashed: bool = False) -> None:
        """A straight line."""
        (x1, y1), (x2, y2) = start, end
        dash = "4 3" if dashed else None
        self.parts.append(
            _element("line", {"x1": x1, "y1": y1, "x2": x2, "y2": y2, "stroke": stroke, "stroke-dasharray": dash})
        )

    def text(
        self,
        x: float,
        y: float,
        words: str,
        *,
        size: float = 11,
        fill: str = INK,
        anchor: str = "start",
        weight: str | None = None,
        mono: bool = False,
        upright: bool = False,
    ) -> None:
        """A line of text with its baseline at ``y``; ``upright`` turns it to read from bottom to top."""
        if not words:
            return
        shape: Attributes = {
            "x": x,
            "y": y,
            "font-family": MONO if mono else SANS,
            "font-size": size,
            "font-weight": weight,
            "fill": fill,
            "text-anchor": None if anchor == "start" else anchor,
            "transform": f"rotate(-90 {_number(x)} {_number(y)})" if upright else None,
            "xml:space": "preserve",
        }
        self.parts.append(_element("text", shape, escape(words)))

    def render(self) -> str:
        """The finished SVG document."""
        size = f'width="{_number(self.width)}" height="{_number(self.height)}"'
        view = f'viewBox="0 0 {_number(self.width)} {_number(self.height)}"'
        head = f'<svg xmlns="http://www.w3.org/2000/svg" {size} {view} role="img" aria-label="{escape(self.title)}">'
        ground = _element(
            "rect",
            {"x": 0.5, "y": 0.5, "width": self.width - 1, "height": self.height - 1, "rx": 6, "fill": GROUND, "stroke": RULE},
        )
        return "\n".join([head, ground, *self.parts, "</svg>"])


def stacked(drawings: Sequence[Drawing], title: str) -> Drawing:
    """Drawings of one width, one below the other."""
    made, y = Drawing(max(d.width for d in drawings), 0, title), 0.0
    for drawing in drawings:
        shift: Attributes = {"transform": f"translate(0 {_number(y)})"}
        made.parts.append(_element("g", shift, "\n".join(drawing.parts)))
        y += drawing.height
    made.height = y
    return made


def _element(tag: str, attributes: Attributes, inside: str = "") -> str:
    given = "".join(
        f' {name}="{_number(value) if isinstance(value, (int, float)) else escape(value)}"'
        for name, value in attributes.items()
        if value is not None
    )
    return f"<{tag}{given}>{inside}</{tag}>" if inside else f"<{tag}{given}/>"


def _number(value: float) -> str:
    return f"{value:.2f}".rstrip("0").rstrip(".")
