"""``import nki`` in three worlds: nothing installed, the PyPI placeholder, a real nki."""

import os
import subprocess
import sys
from pathlib import Path

import nki_sim
import pytest

SOURCE = str(Path(nki_sim.__file__).parents[1])
PLACEHOLDER = 'raise ImportError("WRONG PACKAGE: this nki is a placeholder, get the real one elsewhere")\n'


@pytest.fixture
def world(tmp_path):
    """A function that runs Python text in a fresh process whose path starts with ``tmp_path``."""

    def python(text):
        env = {k: v for k, v in os.environ.items() if not k.startswith("NEURON")}
        env["PYTHONPATH"] = os.pathsep.join([str(tmp_path), SOURCE])
        done = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, env=env, cwd=tmp_path, timeout=60)
        assert done.returncode == 0, done.stderr
        return done.stdout.split()

    return python


def package(root, files):
    for name, text in files.items():
        path = root / "nki" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def test_without_install_and_without_pytorch_there_is_no_nki(world):
    assert world(
        "import sys, nki_sim\nsys.modules['torch'] = None\n"
        "try:\n    import nki\nexcept ModuleNotFoundError as e: print(e.name)\n"
    ) == ["nki"]  # fmt: skip


def test_where_nothing_is_installed_the_simulator_is_nki(world):
    out = world(
        "import nki_sim\nprint(nki_sim.install())\n"
        "import nki, nki.isa as nisa, nki.language as nl\nfrom nki.isa import nc_matmul\nimport nki.typing as nt\n"
        "print(nki.isa is nisa, nl.float32, nc_matmul is nisa.nc_matmul, nki.__version__)\n"
        "import nki_sim.api.nki.isa as same\nprint(same is nisa)\n"
        "print(nki_sim.install())\n"
    )
    assert out == ["True", "True", "float32", "True", "0.7.0", "True", "True"]


def test_the_placeholder_of_pypi_does_not_count(world, tmp_path):
    package(tmp_path, {"__init__.py": PLACEHOLDER})
    out = world(
        "import nki_sim\nprint(nki_sim.install())\n"
        "import nki.isa, nki.language as nl\nprint(nki.isa.nc_matmul.__name__, nl.tile_size.pmax)\n"
    )
    assert out == ["True", "nc_matmul", "128"]


def test_without_install_the_placeholder_still_speaks(world, tmp_path):
    package(tmp_path, {"__init__.py": PLACEHOLDER})
    assert world("import nki_sim\ntry:\n    import nki\nexcept ImportError as e: print(str(e)[:13])\n") == ["WRONG", "PACKAGE"]


@pytest.mark.parametrize("isa", ["isa.py", "isa/__init__.py"])
def test_a_real_nki_wins(world, tmp_path, isa):
    package(tmp_path, {"__init__.py": "who = 'real'\n", isa: "who = 'real-isa'\n"})
    out = world(
        "import nki_sim\nprint(nki_sim.install())\n"
        "import nki, nki.isa\nprint(nki.who, nki.isa.who)\n"
        "try:\n    import nki.language\nexcept ModuleNotFoundError as e: print(e.name)\n"
    )
    assert out == ["False", "real", "real-isa", "nki.language"]


def test_a_real_nki_that_is_imported_already_stays(world, tmp_path):
    package(tmp_path, {"__init__.py": "who = 'real'\n", "isa.py": ""})
    assert world("import nki\nimport nki_sim\nprint(nki_sim.install(), nki.who)\n") == ["False", "real"]


def test_uninstall_takes_nki_away_again(world):
    out = world(
        "import nki_sim\nfrom nki_sim.importer import uninstall\nnki_sim.install()\nimport nki.isa\nuninstall()\n"
        "try:\n    import nki\nexcept ModuleNotFoundError as e: print(e.name)\n"
        "print(nki_sim.install())\nimport nki.isa\nprint(nki.isa.memset.__name__)\n"
    )
    assert out == ["nki", "True", "memset"]


def test_names_that_do_not_exist(world):
    """Python itself words what ``from … import`` says; an attribute gets our answer."""
    out = world(
        "import nki_sim\nnki_sim.install()\nimport nki.isa as nisa\n"
        "try:\n    nisa.multiply\nexcept AttributeError as e: print('nisa.tensor_scalar' in str(e))\n"
        "try:\n    from nki.isa import multiply\nexcept ImportError as e: print('multiply' in str(e))\n"
        "try:\n    import nki.nothing\nexcept ModuleNotFoundError as e: print(e.name)\n"
        "print(hasattr(nisa, 'multiply'), hasattr(nisa, 'memset'))\n"
    )
    assert out == ["True", "True", "nki.nothing", "False", "True"]


def test_what_is_loaded_at_first_use_is_listed_and_found():
    text = """
import nki_sim
nki_sim.install()
import nki
from nki import isa
assert "collectives" in dir(nki) and "scalar_load" in dir(isa)
assert nki.collectives.all_reduce is not None and isa.scalar_load is isa.scalar_load
import nki.collectives as ncc
assert ncc is nki.collectives
from nki.isa import *
from nki import *
assert scalar_load is isa.scalar_load and collectives is ncc
"""
    subprocess.run([sys.executable, "-c", text], check=True, timeout=60)
