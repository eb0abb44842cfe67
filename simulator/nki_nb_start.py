"""What Python runs at its start where nki-nb is installed: scripts for torch-neuronx begin with ``import nki``.

Where PyTorch is installed and nothing else finds ``nki`` or ``torch_neuronx``, the simulator is found. Until a script imports
one of the two, nothing is loaded. ``nki_nb_start.pth`` beside this file is what makes Python run it.

PYTEST_DONT_REWRITE: it is loaded before pytest could, which would say so.
"""

import sys


class Start:
    """A last finder, in place of the simulator's until they are needed."""

    @staticmethod
    def find_spec(name, path=None, target=None):
        if name not in ("nki", "torch_neuronx"):
            return None
        import importlib.util  # 4 ms, which other scripts need not pay

        if importlib.util.find_spec("torch") is None:
            return None
        from nki_sim.importer import install

        install()  # which takes this finder away
        return importlib.util.find_spec(name)


sys.meta_path.append(Start)
