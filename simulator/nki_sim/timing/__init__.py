"""When each instruction of a recorded program runs on the device, and what that says: estimates."""

from nki_sim.program import Order
from nki_sim.timing.advice import Advice, advise
from nki_sim.timing.dependencies import Dependencies, check_order, dependencies, names_later
from nki_sim.timing.descriptors import DmaShape, dma_shape
from nki_sim.timing.profile import EngineProfile, Profile, profile
from nki_sim.timing.schedule import schedule
from nki_sim.timing.timeline import ENGINES, Timeline, core_of

__all__ = [
    "ENGINES",
    "Advice",
    "Dependencies",
    "DmaShape",
    "EngineProfile",
    "Order",
    "Profile",
    "Timeline",
    "advise",
    "check_order",
    "core_of",
    "dependencies",
    "dma_shape",
    "names_later",
    "profile",
    "schedule",
]
