"""Kernels out of the folder and into it, by the key that they have in this process."""

from __future__ import annotations

from typing import Any

from nki_sim.cache import Entry
from nki_sim.hw import NeuronCore
from nki_sim.kept.files import layer


def recall(key: Any, kernel: str, core: NeuronCore) -> Entry | None:
    """What an earlier process kept under a key, where the layer is on."""
    folder = layer()
    if folder is None:
        return None
    from nki_sim.kept.digest import Unkept, digest  # loaded where the layer is on
    from nki_sim.kept.encoding import decode

    try:
        name = digest(key)
    except Unkept:
        return None

    content = folder.load(name, kernel)
    if content is None:
        return None
    try:
        entry = decode(content, core)
    except ValueError as error:
        folder.forget(name, kernel, str(error))
        return None
    folder.hit(name, kernel)
    return entry


def keep(key: Any, kernel: str, entry: Entry) -> None:
    """Keep an entry for the processes after this one, where the layer is on."""
    folder = layer()
    if folder is None:
        return
    from nki_sim.kept.digest import Unkept, digest
    from nki_sim.kept.encoding import encode

    try:
        folder.save(digest(key), kernel, encode(entry))
    except Unkept as reason:
        folder.say(f"NOT KEPT {kernel}: {reason}")
