"""What Binder reads in ``binder/``; ``.ci/binder`` does what Binder does with it."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[2]
BINDER = ROOT / "binder"
PIN = re.compile(r"(?P<name>[a-z0-9-]+)==(?P<version>[a-z0-9.]+)(?: ; .+)?")


def asked() -> list[Requirement]:
    """What pyproject.toml and requirements.in ask for."""
    tomllib = pytest.importorskip("tomllib", reason="Python 3.11 has it")
    project: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    lines = (BINDER / "requirements.in").read_text(encoding="utf-8").splitlines()
    more = [line for line in lines if not line.startswith("#")]
    extra = project["project"]["optional-dependencies"]["lab"]
    return [*map(Requirement, [*project["project"]["dependencies"], *extra, *project["build-system"]["requires"], *more])]


def test_every_version_is_pinned_and_fits() -> None:
    lines = (BINDER / "requirements.txt").read_text(encoding="utf-8").splitlines()
    pins = [PIN.fullmatch(line) for line in lines if not line.lstrip().startswith("#")]
    assert pins and None not in pins
    pinned = {pin["name"]: pin["version"] for pin in pins if pin}
    wrong = [str(one) for one in asked() if not one.specifier.contains(pinned.get(canonicalize_name(one.name), "0"))]
    assert wrong == [], "run binder/pin"


def test_python() -> None:
    assert (BINDER / "runtime.txt").read_text(encoding="utf-8") == "python-3.11\n"


def test_post_build_leaves_the_pins_alone() -> None:
    path = BINDER / "postBuild"
    installing = re.findall("pip install .*", path.read_text(encoding="utf-8"))
    assert os.access(path, os.X_OK) and len(installing) == 1
    assert {"--no-deps", "--no-build-isolation"} < set(installing[0].split())


def test_the_workspace_opens_the_first_notebook() -> None:
    workspace = json.loads((BINDER / "workspace.json").read_text(encoding="utf-8"))
    assert workspace["metadata"] == {"id": "default"}
    main = workspace["data"]["layout-restorer:data"]["main"]
    opened = workspace["data"][main["current"]]["data"]["path"]
    assert main["dock"]["widgets"] == [main["current"]] == [f"notebook:{opened}"]
    assert opened == "tutorials/01_first_kernel.ipynb" and (ROOT / opened).is_file()
