"""Running a recorded program again on other inputs of the same shapes and dtypes."""

from nki_sim.replay import scratch
from nki_sim.replay.alike import PROGRAMS, bind
from nki_sim.replay.bound import Bound


def forget() -> None:
    """Let go of all that is kept for the next run: programs, and memory."""
    PROGRAMS.clear()
    scratch.forget()


__all__ = ["PROGRAMS", "Bound", "bind", "forget"]
