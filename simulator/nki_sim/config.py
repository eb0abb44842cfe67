"""Compiler and specialisation options, as ``nki.compiler`` has them since 0.7.

They steer the vendor's scheduler and allocator; a kernel that passes them runs here all the same.
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
    """Options of one kernel's specialisation."""

    allow_nested_config_override: bool = False
