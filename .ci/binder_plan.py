"""Plan Binder's image of the checkout in PLACE/user, as shell: ``python .ci/binder_plan.py PLACE``. Needs repo2docker.

Writes to PLACE: ``environment``, the plan's variables, with the image's root directories moved to PLACE; ``requirements`` and
``rest``, the steps that see the repository; ``beside.txt``, the Python packages that every image has and this one does not pin.
"""

import os
import re
import shlex
import sys
from pathlib import Path

from packaging.utils import canonicalize_name
from repo2docker import buildpacks
from repo2docker.app import Repo2Docker
from ruamel.yaml import YAML

VERSION = "3.11"
ON_PYPI = {"jupyterhub-singleuser": "jupyterhub"}
NOT_ON_PYPI = {"python", "nodejs", "pip"}


def main(place: Path) -> None:
    """Write the plan, or say what is unlike Binder's."""
    os.chdir(place / "user")
    pack = picked()
    steps = plan(pack)
    installing = [step for step in steps if "binder/requirements.txt" in step]
    if len(installing) != 1 or steps[0] != installing[0] or "./binder/postBuild" not in steps:
        sys.exit(f"binder: expected the plan to install binder/requirements.txt, then to run binder/postBuild; it is {steps}")
    (place / "environment").write_text("".join(f'export {name}="{value}"\n' for name, value in variables(pack, place).items()))
    (place / "requirements").write_text(shell(installing))
    (place / "rest").write_text(shell(steps[1:]))
    (place / "beside.txt").write_text("".join(f"{name}=={version}\n" for name, version in beside().items()))


def picked() -> buildpacks.PythonBuildPack:
    """The build pack that repo2docker picks, as it picks one."""
    app = Repo2Docker()
    pack = next(pack for kind in app.buildpacks if (pack := kind(base_image=app.base_image)).detect())
    pack.platform = app.platform
    if type(pack) is not buildpacks.PythonBuildPack or pack.python_version != VERSION:
        found = f"{type(pack).__name__} with Python {getattr(pack, 'python_version', None)}"
        sys.exit(f"binder: expected PythonBuildPack with Python {VERSION}, repo2docker picks {found}: see binder/runtime.txt")
    print(f"binder: repo2docker picks {type(pack).__name__}, Python {pack.python_version}")
    return pack


def plan(pack: buildpacks.PythonBuildPack) -> list[str]:
    """The plan's steps that depend on the repository, in order."""
    steps = [*pack.get_preassemble_scripts(), *pack.get_assemble_scripts()]
    if as_root := [step for user, step in steps if user != "${NB_USER}"]:
        sys.exit(f"binder: steps that only a container can take, as root: {as_root}")
    after = [line for path in pack.get_post_build_scripts() for line in (f"chmod +x {path}", f"./{path}")]
    return [step for _, step in steps] + after


def variables(pack: buildpacks.PythonBuildPack, place: Path) -> dict[str, str]:
    """What the image's Dockerfile sets, with ``/srv`` and ``/home`` moved."""
    moved = {"NB_USER": "jovyan", "HOME": f"{place}/user", "REPO_DIR": "${HOME}"}
    set_first = dict(pack.get_build_env()) | {"APP_BASE": f"{place}/srv"}
    local = ["${HOME}/.local/bin", "${REPO_DIR}/.local/bin"]
    return moved | set_first | {"PATH": ":".join([*local, *pack.get_path(), "${PATH}"])} | dict(pack.get_env())


def beside() -> dict[str, str]:
    """Python packages that repo2docker asks for in every image, at the versions of its lock file, without those pinned here."""
    folder = Path(buildpacks.__file__).parent / "conda"
    asked = YAML(typ="safe").load((folder / "environment.yml").read_text())["dependencies"]
    locked = (folder / f"environment.py-{VERSION}-linux-64.lock").read_text()
    found = dict(re.findall(r"/([^/]+)-([^-/]+)-[^-/]+\.(?:conda|tar\.bz2)", locked))
    pinned = set(re.findall("^([^=# ]+)==", Path("binder/requirements.txt").read_text(), re.M))
    names = {name: canonicalize_name(ON_PYPI.get(name, name)) for name in (re.split("[=<>]", one)[0] for one in asked)}
    return {on_pypi: found[name] for name, on_pypi in names.items() if on_pypi not in NOT_ON_PYPI | pinned}


def shell(steps: list[str]) -> str:
    """Steps as Docker runs them, each in a shell of its own."""
    return "".join(f"printf '\\n$ %s\\n' {shlex.quote(step)}\n/bin/sh -c {shlex.quote(step)}\n" for step in steps)


if __name__ == "__main__":
    main(Path(sys.argv[1]).resolve())
