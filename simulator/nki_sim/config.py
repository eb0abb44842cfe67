"""Compiler and specialisation options, as ``nki.compiler`` has them since 0.7.

They steer the vendor's scheduler and allocator and change no value; what they say about kernels in kernels holds here too.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class AddressRotation(Enum):
    """Whether the allocator rotates addresses of tiles that a loop allocates."""

    AUTO = "auto"
    ENABLE = "enable"
    DISABLE = "disable"


@dataclass(frozen=True, kw_only=True)
class CompileConfig:
    """Options of one kernel's compilation."""

    address_rotation: AddressRotation = AddressRotation.AUTO
    non_ssa_legalization: bool = False
    dead_code_elim: bool = True
    barrier_check: bool = True
    prefetch_auto: bool = False
    nki_alloc_fallback: bool = True


@dataclass(frozen=True, kw_only=True)
class SpecializationConfig:
    """Options of one kernel's specialisation.

    Attributes:
        allow_nested_config_override: a kernel called inside this one may have other options: reported, not an error.
    """

    allow_nested_config_override: bool = False


@dataclass(frozen=True)
class Configs:
    """What ``nki.jit`` was given for one kernel."""

    compile: CompileConfig | None = None
    specialization: SpecializationConfig | None = None

    def differing(self, outer: Configs) -> str:
        """The option that a kernel inside of one with other options sets to something else; empty when there is none."""
        if self.compile is not None and self.compile != (outer.compile or CompileConfig()):
            return "compile_config"
        if self.specialization is not None and self.specialization != (outer.specialization or SpecializationConfig()):
            return "specialization_config"
        return ""

    @property
    def allows_other(self) -> bool:
        """Whether kernels inside may have other options."""
        return self.specialization is not None and self.specialization.allow_nested_config_override
