"""Run the tutorials from the top and show what comes out differently: ``python tests/notebook/refresh.py [NOTEBOOK …]``.

Exits 1 when something does, after the replacements of ``tutorials/sanitize.cfg``, as in nbval. ``--write`` keeps what came out;
read the difference before you commit it.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections.abc import Iterator
from difflib import unified_diff
from pathlib import Path
from typing import Any

import nbformat
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError, CellTimeoutError, DeadKernelError
from needs import missing

TUTORIALS = Path(__file__).parents[2] / "tutorials"
WIDGET = "application/vnd.jupyter.widget-view+json"
METADATA = {
    "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
    "language_info": {"name": "python"},
}
SECONDS = 120
"""For one cell."""


def main() -> int:
    """Run what was named, or all."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("notebooks", nargs="*", metavar="NOTEBOOK", help="a path, or a name in tutorials/; default: all")
    parser.add_argument("--write", action="store_true", help="keep what came out")
    options = parser.parse_args()
    try:
        paths = [find(name) for name in options.notebooks] or sorted(TUTORIALS.glob("*.ipynb"))
    except FileNotFoundError as error:
        parser.error(str(error))
    different = 0
    for path in paths:
        if reason := missing(path):
            print(reason, flush=True)
            continue
        try:
            lines = refresh(path, options.write)
        except (CellExecutionError, CellTimeoutError, DeadKernelError) as error:
            print(f"{path.name}: stopped, nothing written: mend the cell, or tag it raises-exception\n{error}", flush=True)
            different += 1
            continue
        print("\n".join(lines) if lines else f"{path.name}: same", flush=True)
        different += bool(lines) and not options.write
    return int(different > 0)


def find(name: str) -> Path:
    """The notebook of this path or of this name in ``tutorials/``."""
    for path in (Path(name), TUTORIALS / name):
        if path.is_file():
            return path
    known = ", ".join(sorted(path.name for path in TUTORIALS.glob("*.ipynb")))
    raise FileNotFoundError(f"no notebook {name}: give a path, or one of {known}")


def refresh(path: Path, write: bool = True) -> list[str]:
    """Execute one notebook; return what is different, as lines, and write the file if asked to.

    What is written is without what depends on the machine, or on a kernel that is gone: a reader sees the still picture of a
    widget until they run its cell. Outputs that differ only where they may are left as they are.
    """
    text = path.read_text(encoding="utf-8")
    kept, new = (nbformat.reads(text, as_version=4) for _ in range(2))
    NotebookClient(
        new,
        timeout=SECONDS,
        kernel_name="python3",
        record_timing=False,
        coalesce_streams=True,
        extra_arguments=["--log-level=ERROR"],
        resources={"metadata": {"path": str(path.parent)}},
    ).execute()
    new.metadata = METADATA
    lines = []
    for i, (before, after) in enumerate(zip(kept.cells, new.cells, strict=True)):
        for output in after.get("outputs", ()):
            output.get("data", {}).pop(WIDGET, None)
        found = list(unified_diff(shown(before), shown(after), f"{path.name} cell {i}, kept", "new", lineterm=""))
        if not found and "outputs" in after:
            after.outputs = before.outputs
        lines += found
    written = nbformat.writes(new) + "\n"
    if not lines and written != text:
        lines = [f"{path.name}: outputs are the same; metadata, execution counts or format differ"]
    if write and lines:
        path.write_text(written, encoding="utf-8")
    return lines


def shown(cell: Any) -> list[str]:
    """What a cell shows, line by line, as far as nbval compares it."""
    lines = []
    for output in cell.get("outputs", ()):
        for kind, text in parts(output):
            for pattern, replacement in replacements():
                text = re.sub(pattern, replacement, text)
            lines += [f"[{kind}]", *text.replace("><", ">\n<").splitlines()]
    return lines


def parts(output: Any) -> Iterator[tuple[str, str]]:
    """Each thing that one output shows, with its kind."""
    if output.output_type == "stream":
        yield output.name, output.text
    elif output.output_type == "error":
        yield "error", f"{output.ename}: {output.evalue}"
    else:
        for kind, data in sorted(output.data.items()):
            if kind != WIDGET:
                yield kind, data if isinstance(data, str) else json.dumps(data, indent=1, sort_keys=True)


def replacements() -> list[tuple[str, str]]:
    """Patterns and what to put in their place, read as nbval reads them."""
    text = (TUTORIALS / "sanitize.cfg").read_text(encoding="utf-8")
    return re.findall("^regex: (.*)$\n^replace: (.*)$", text, flags=re.MULTILINE)


if __name__ == "__main__":
    sys.exit(main())
