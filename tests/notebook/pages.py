"""What a page would load or run."""

from __future__ import annotations

from html.parser import HTMLParser


class Tags(HTMLParser):
    """Collects tags, and attributes that load or run something."""

    def __init__(self) -> None:
        super().__init__()
        self.loads: list[str] = []
        self.tags: set[str] = set()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.loads += [f"{tag} {name}={value}" for name, value in attrs if name in ("src", "srcset") or name[:2] == "on"]
        if tag == "link":
            self.loads.append("link")


def read(html: str) -> Tags:
    tags = Tags()
    tags.feed(html)
    return tags
