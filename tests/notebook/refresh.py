"""Run the tutorials again in place, after what they show has changed: ``python tests/notebook/refresh.py``.

Needs JupyterLab's ``nbclient``. Read the difference before you keep it.
"""

from __future__ import annotations

from pathlib import Path

import nbformat
from nbclient import NotebookClient

TUTORIALS = Path(__file__).parents[2] / "tutorials"
WIDGET = "application/vnd.jupyter.widget-view+json"
METADATA = {
    "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
    "language_info": {"name": "python"},
}


def refresh(path: Path) -> None:
    """Execute one notebook and write it without what depends on the machine, or on a kernel that is gone: a reader sees the
    still picture of a widget until they run its cell."""
    notebook = nbformat.read(path, as_version=4)
    NotebookClient(notebook, timeout=120, kernel_name="python3", record_timing=False).execute()
    notebook.metadata = METADATA
    for output in (o for cell in notebook.cells for o in cell.get("outputs", ())):
        output.get("data", {}).pop(WIDGET, None)
    nbformat.write(notebook, path)


if __name__ == "__main__":
    for found in sorted(TUTORIALS.glob("*.ipynb")):
        refresh(found)
        print(f"ran {found.name}")
