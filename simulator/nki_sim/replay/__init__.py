"""Running a recorded program again on other inputs of the same shapes and dtypes."""

from nki_sim.replay.bound import Bound

__all__ = ["Bound"]
