"""Fail unless REQUIREMENTS pins what is installed and all that it needs: ``python .ci/binder_check.py REQUIREMENTS``."""

import sys
from importlib.metadata import PackageNotFoundError, requires, version
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

PROJECT = ("nki-nb", "lab")
"""What the requirements are for: a package and its extra."""


def main(path: Path) -> None:
    """Say what is not as pinned, or how many are."""
    lines = path.read_text(encoding="utf-8").splitlines()
    pins = [Requirement(line) for line in lines if line and not line.lstrip().startswith("#")]
    pinned = {canonicalize_name(pin.name): str(pin.specifier).removeprefix("==") for pin in pins}
    wrong = [f"{name} is {version(name)}, pinned is {wanted}" for name, wanted in pinned.items() if version(name) != wanted]
    wrong += [f"{name} is needed and not pinned" for name in sorted(needed(pinned) - {*pinned, PROJECT[0]})]
    if wrong:
        sys.exit("\n".join([f"{path}: run binder/pin", *wrong]))
    print(f"binder: {len(pinned)} packages as pinned")


def needed(pinned: dict[str, str]) -> set[str]:
    """Packages that the project and the pinned ones need here, and those that these need."""
    todo, seen = [PROJECT, *((name, "") for name in pinned)], set()
    while todo:
        name, extra = one = todo.pop()
        if one in seen:
            continue
        seen.add(one)
        try:
            lines = requires(name) or ()
        except PackageNotFoundError:  # nothing pinned, nothing installed
            continue
        for asked in map(Requirement, lines):
            if asked.marker is None or asked.marker.evaluate({"extra": extra}):
                todo += [(canonicalize_name(asked.name), wanted) for wanted in ("", *asked.extras)]
    return {name for name, _ in seen}


if __name__ == "__main__":
    main(Path(sys.argv[1]))
