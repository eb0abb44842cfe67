"""Write where the course can be opened into README.md and every notebook: ``python binder/links.py OWNER/NAME [--ref REF]``.

OWNER/NAME is the repository's public address on GitHub, which README.md keeps in the first of its two markers; without one
there are no links, and each notebook says how to open it here. Without arguments, what README.md keeps is written again.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote

ROOT = Path(__file__).parents[1]
FIRST = "01_first_kernel.ipynb"
LINE = "*Launch:* "
"""How the launch line of a notebook begins."""

BLOCK = re.compile(r"<!-- launch:begin(?: (?P<name>[^ @]+)@(?P<ref>[^ ]+))? -->\n(?P<text>.*?)<!-- launch:end -->", re.S)
NAME, REF = re.compile(r"[A-Za-z0-9-]+/[A-Za-z0-9._-]+"), re.compile(r"[A-Za-z0-9._/-]+")


class Address(NamedTuple):
    """A public repository, and what of it to open: a branch, a tag or a commit."""

    name: str
    ref: str

    def binder(self, notebook: str) -> str:
        """Where Binder opens a notebook."""
        return f"https://mybinder.org/v2/gh/{self.name}/{quote(self.ref, safe='')}?labpath=tutorials%2F{notebook}"

    def colab(self, notebook: str) -> str:
        """Where Colab opens a notebook."""
        return f"https://colab.research.google.com/github/{self.name}/blob/{self.ref}/tutorials/{notebook}"

    @property
    def install(self) -> str:
        """What to run first where nki-nb is not installed."""
        return f'%pip install "git+https://github.com/{self.name}@{self.ref}"'


class LinkError(Exception):
    """Something is not as this script left it, or cannot be an address."""


def main(words: list[str] | None = None) -> int:
    """Write, or with ``--check`` say what is not as it would be written."""
    options = _parser().parse_args(words)
    try:
        readme = (ROOT / "README.md").read_text(encoding="utf-8")
        address = _wanted(options, readme)
        new = {ROOT / "README.md": with_badges(readme, address)}
        for path in sorted((ROOT / "tutorials").glob("*.ipynb")):
            new[path] = with_launch_line(path, address)
    except LinkError as error:
        print(f"links.py: {error}", file=sys.stderr)
        return 2
    changed = [path for path, text in new.items() if text != path.read_text(encoding="utf-8")]
    for path in changed:
        if not options.check:
            path.write_text(new[path], encoding="utf-8")
        print(f"{'out of date' if options.check else 'wrote'}: {path.relative_to(ROOT)}")
    return int(options.check and bool(changed))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("name", nargs="?", metavar="OWNER/NAME", help="default: as in README.md")
    parser.add_argument("--ref", default="main", help="branch, tag or commit; default: %(default)s")
    parser.add_argument("--no-address", action="store_true", help="no links")
    parser.add_argument("--check", action="store_true", help="write nothing; exit 1 when something is out of date")
    return parser


def _wanted(options: argparse.Namespace, readme: str) -> Address | None:
    if options.no_address:
        return None
    if options.name is None:
        return kept(readme)
    for what, value, pattern in (("OWNER/NAME", options.name, NAME), ("REF", options.ref, REF)):
        if not pattern.fullmatch(value):
            raise LinkError(f"{value!r} is no {what}: write it as in octocat/hello-world --ref main")
    return Address(options.name, options.ref)


def kept(readme: str) -> Address | None:
    """The address that README.md keeps."""
    found = _block(readme)
    return Address(found["name"], found["ref"]) if found["name"] else None


def _block(readme: str) -> re.Match[str]:
    found = list(BLOCK.finditer(readme))
    if len(found) != 1:
        markers = "<!-- launch:begin --> and <!-- launch:end -->"
        raise LinkError(f"README.md has {len(found)} launch blocks: write one, two lines that say {markers}")
    return found[0]


def with_badges(readme: str, address: Address | None) -> str:
    """README.md with the badges of this address, or with none."""
    found = _block(readme)
    if address is None:
        head, text = "launch:begin", ""
    else:
        head = f"launch:begin {address.name}@{address.ref}"
        text = (
            f"[![Open in Binder](https://mybinder.org/badge_logo.svg)]({address.binder(FIRST)})\n"
            f"[![Open in Colab](https://colab.research.google.com/assets/colab-badge.svg)]({address.colab(FIRST)})\n"
        )
    return f"{readme[: found.start()]}<!-- {head} -->\n{text}<!-- launch:end -->{readme[found.end() :]}"


def launch_line(notebook: str, address: Address | None) -> str:
    """How to open one notebook."""
    here = f"`nki-nb lab {notebook}`"
    if address is None:
        return f"{LINE}{here} opens this notebook in JupyterLab."
    return (
        f"{LINE}[Binder]({address.binder(notebook)}) with everything installed; "
        f"[Colab]({address.colab(notebook)}) after running `{address.install}` in a new first cell; "
        f"or {here} on your machine."
    )


def with_launch_line(path: Path, address: Address | None) -> str:
    """A notebook's file with its launch line below the title, all else as it is."""
    notebook: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    first = notebook["cells"][0]
    title, _, rest = "".join(first["source"]).partition("\n\n")
    if first["cell_type"] != "markdown" or not title.startswith("# ") or "\n" in title:
        raise LinkError(f"{path.name} begins with {title[:60]!r}: let its first cell be Markdown, a title and an empty line")
    if rest.startswith(LINE):
        rest = rest.partition("\n\n")[2]
    first["source"] = f"{title}\n\n{launch_line(path.name, address)}\n\n{rest}".splitlines(keepends=True)
    return json.dumps(notebook, indent=1, ensure_ascii=False, sort_keys=True) + "\n"


if __name__ == "__main__":
    sys.exit(main())
