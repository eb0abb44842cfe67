"""Run the tutorials again in place, after what they show has changed: ``python tests/notebook/refresh.py``.

Needs JupyterLab's ``nbclient``. Read the difference before you keep it.
"""

from __future__ import annotations

from pathlib import Path

import nbformat
from nbclient import NotebookClient

TUTORIALS = Path(__file__).parents[2] / "tutorials"
METADATA = {
    "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
    "language_info": {"name": "python"},
}


def refresh(path: Path) -> None:
    """Execute one notebook and write it without anything that depends on the machine."""
    notebook = nbformat.read(path, as_version=4)
    NotebookClient(notebook, timeout=120, kernel_name="python3", record_timing=False).execute()
    notebook.metadata = METADATA
    nbformat.write(notebook, path)


if __name__ == "__main__":
    for found in sorted(TUTORIALS.glob("*.ipynb")):
        refresh(found)
        print(f"ran {found.name}")
