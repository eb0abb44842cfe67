"""Specialised kernels in files, for the processes after this one: what ``NKI_ENABLE_TRACE_CACHE`` turns on.

The files hold data only: plans, steps, shapes and numbers, in JSON and raw bytes. What does not read back as written is
forgotten and made again.
"""

from nki_sim.kept.files import layer
from nki_sim.kept.kernels import keep, recall

__all__ = ["keep", "layer", "recall"]
