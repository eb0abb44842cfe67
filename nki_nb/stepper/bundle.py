"""The viewer's modules as one: what anywidget and a saved page want is one text, not a folder.

Our modules keep to a small part of the language, so that joining them needs no build tool: they import names from each
other by ``import { a, b } from "./x.js"``, export at the start of a declaration, and share no top-level name. Joining is
then putting them one after another, imports first, with the import lines and the word ``export`` taken away. Whatever
does not keep to it is an error here and in the tests, not a surprise in the browser.
"""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

STATIC = Path(__file__).with_name("static")
ENTRY = "stepper.js"

_IMPORT = re.compile(r'^import \{ ([\w, ]+) \} from "\./([\w.]+)";\n', re.MULTILINE)
_EXPORT = re.compile(r"^export (?=(?:async )?(?:function|class|const) )", re.MULTILINE)
_DECLARED = re.compile(r"^(export )?(?:async )?(?:function|class|const|let) (\w+)", re.MULTILINE)
_LEFT = re.compile(r"^(?:import|export)\b.*|(?:await|=|return) import\(", re.MULTILINE)
_DEFAULT = "\nexport default { render };\n"


class BundleError(ValueError):
    """A module does not keep to the part of the language that can be joined; says which and where."""


def join(entry: str = ENTRY, folder: Path = STATIC) -> str:
    """All modules that ``entry`` needs as one, which exports the entry's own exports.

    Raises:
        BundleError: a module imports or exports in another way, a name that is not exported, or shares a name.
    """
    parts: dict[str, str] = {}
    _visit(entry, folder, parts, ())
    _check_names(parts)
    own = [name for exported, name in _DECLARED.findall(parts[entry]) if exported]
    body = "\n".join(f"// -- {name}\n{_plain(name, text)}" for name, text in parts.items())
    default = _DEFAULT if _DEFAULT in parts[entry] else ""
    names = f"export {{ {', '.join(own)} }};\n" if own else ""
    return f"{body}{default}{names}"


@cache
def script() -> str:
    """The viewer as one ES module."""
    return join()


@cache
def style() -> str:
    """The viewer's style sheet."""
    return (STATIC / "stepper.css").read_text(encoding="utf-8")


def _visit(name: str, folder: Path, parts: dict[str, str], above: tuple[str, ...]) -> None:
    """Add a module after those it imports."""
    if name in parts:
        return
    if name in above:
        raise BundleError(f"modules import each other: {' → '.join([*above, name])}")
    text = (folder / name).read_text(encoding="utf-8")
    for names, other in _IMPORT.findall(text):
        _visit(other, folder, parts, (*above, name))
        exported = {n for mark, n in _DECLARED.findall(parts[other]) if mark}
        missing = [n for n in names.split(", ") if n not in exported]
        if missing:
            raise BundleError(f"{name} imports {', '.join(missing)}, which {other} does not export")
    parts[name] = text


def _check_names(parts: dict[str, str]) -> None:
    owner: dict[str, str] = {}
    for module, text in parts.items():
        for _, name in _DECLARED.findall(text):
            if owner.setdefault(name, module) != module:
                raise BundleError(f"{module} and {owner[name]} both have a top-level {name}")


def _plain(name: str, text: str) -> str:
    plain = _EXPORT.sub("", _IMPORT.sub("", text)).replace(_DEFAULT, "\n")
    left = _LEFT.search(plain)
    if left:
        raise BundleError(f"{name}: cannot join {left.group().strip()!r}")
    return plain
