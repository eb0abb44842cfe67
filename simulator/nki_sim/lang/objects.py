"""``NKIObject`` and other small things of ``nki.language`` that are no operation."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NoReturn

from nki_sim import context
from nki_sim.deprecated import warn
from nki_sim.errors import NkiTypeError, NkiValidationError, Rule, fail, page
from nki_sim.memory import MemoryRegion
from nki_sim.tensor import DynamicSlice, NkiTensor

_PRINT = page("api/generated/nki.language.device_print.html")
PRINT_BUFFER = Rule(
    "device_print.buffers",
    "device_print takes a tensor in SBUF or HBM and a constant string",
    fix="nisa.tensor_copy it to SBUF first",
    page=_PRINT,
)


class _KernelObject(type):
    """Lets dataclasses derived from :class:`NKIObject` be made as the public kernel library makes them.

    A dataclass made without a required field gets ``None`` there, and keywords that name a plain class attribute are set
    as attributes. This holds for generated constructors only; a constructor of the class's own is called as it is.
    """

    def __call__(cls, *args: Any, **kwargs: Any) -> Any:
        if not _has_generated_init(cls):
            return super().__call__(*args, **kwargs)
        fields = [f for f in dataclasses.fields(cls) if f.init]  # type: ignore[arg-type]
        names = [f.name for f in fields]
        extra = {k: kwargs.pop(k) for k in list(kwargs) if k not in names and hasattr(cls, k)}
        for f in fields[len(args) :]:
            optional = f.default is not dataclasses.MISSING or f.default_factory is not dataclasses.MISSING
            if f.name not in kwargs and not optional:
                kwargs[f.name] = None
        made = super().__call__(*args, **kwargs)
        for name, value in extra.items():
            setattr(made, name, value)
        return made


def _has_generated_init(cls: type) -> bool:
    parameters = cls.__dict__.get("__dataclass_params__")
    init: Any = cls.__dict__.get("__init__")
    return parameters is not None and parameters.init and getattr(init, "__code__", None) is not None and (
        init.__code__.co_filename == "<string>")  # fmt: skip


class NKIObject(metaclass=_KernelObject):
    """Base of kernel dataclasses and configuration objects: keyword arguments become attributes.

    Example:
        class Tiling(nl.NKIObject):
            rows = 128

        tiling = Tiling(columns=64)
        tile = nl.load(x[0 : tiling.rows, 0 : tiling.columns])
    """

    def __init__(self, **kwargs: Any) -> None:
        for name, value in kwargs.items():
            setattr(self, name, value)


def ds(start: Any, size: int) -> DynamicSlice:
    """``size`` elements from ``start``, as an index.

    Args:
        start: a whole number. size: how many elements, known while the kernel is built.

    Example:
        tile = nl.load(x[:, nl.ds(64, 32)])  # columns 64 to 95
    """
    return DynamicSlice(start, size)


def device_print(print_prefix: str, tensor: NkiTensor) -> None:
    """Print a prefix and a tensor's values now.

    Args:
        print_prefix: a constant string.
        tensor: in SBUF or HBM.

    Raises:
        NkiValidationError: the tensor is in PSUM, or the prefix is no string.

    Example:
        a = nl.load(x[0:2, 0:3])
        nl.device_print("a =", a)
    """
    machine = context.machine()
    subject = "nl.device_print"
    if not isinstance(print_prefix, str) or not isinstance(tensor, NkiTensor):
        what = f"prefix {type(print_prefix).__name__}, tensor {type(tensor).__name__}"
        raise fail(PRINT_BUFFER, what, target=machine.core.target, subject=subject, error=NkiTypeError)
    if tensor.buffer is MemoryRegion.psum:
        raise fail(PRINT_BUFFER, "tensor is in PSUM", target=machine.core.target, subject=subject, operand="tensor",
                   error=NkiValidationError)  # fmt: skip
    tensor.storage.allocation.looked_at = True
    machine.effect(lambda: print(print_prefix, repr(tensor) if machine.dry else tensor))


def _deprecated_range(name: str) -> Any:
    def iterate(start: int, stop: int | None = None, step: int = 1) -> range:
        warn("nki.language", name)
        return range(start) if stop is None else range(start, stop, step)

    iterate.__name__ = iterate.__qualname__ = name
    iterate.__doc__ = f"""Deprecated alias of ``range``: ``{name}(start, stop=None, step=1)``, fully unrolled.

    Args:
        start, stop, step: as for ``range``.

    Example:
        for i in range(4):  # instead of nl.{name}(4)
            tile = nl.load(x[:, 128 * i : 128 * i + 64])
        last = nl.copy(tile)
    """
    return iterate


affine_range = _deprecated_range("affine_range")
sequential_range = _deprecated_range("sequential_range")
static_range = _deprecated_range("static_range")


@contextmanager
def no_reorder() -> Iterator[None]:
    """Keep program order inside the block, engine by engine, also in the order that a compiler may choose (timelines). Values
    never depend on it: the simulator computes in program order. A loop at run time may not start in it.

    Example:
        a = nl.load(x[:, 0:64])
        with nl.no_reorder():
            nisa.tensor_scalar(dst=a, data=a, op0=nl.multiply, operand0=2.0)
            nisa.tensor_scalar(dst=a, data=a, op0=nl.add, operand0=1.0)
    """
    machine = context.machine()
    machine.keep_order(True)
    try:
        yield
    finally:
        machine.keep_order(False)


def program_id(axis: int = 0) -> int:
    """Index of this logical core: 0, or 1 on the second of two.

    Args:
        axis: an axis of the grid.

    Example:
        start = 256 * nl.program_id(axis=0)
        tile = nl.load(x[:, start : start + 256])
    """
    return context.machine().number


def num_programs(axes: Any = 0) -> int:
    """Number of logical cores that run the kernel: 1, or 2 of ``kernel[2]``.

    Args:
        axes: an axis of the grid, or several.

    Example:
        share = x.shape[1] // nl.num_programs(axes=0)
        tile = nl.load(x[:, 0:share])
    """
    return context.machine().programs


def program_ndim() -> int:
    """Dimensions of the launch grid: 1 of ``kernel[n]``, 0 where there is no grid.

    Example:
        core = nl.program_id(axis=0) if nl.program_ndim() else 0
        tile = nl.load(x[:, 256 * core : 256 * (core + 1)])
    """
    return context.machine().grid


def is_hbm(buffer: MemoryRegion) -> bool:
    """Whether the buffer is any kind of HBM.

    Example:
        a = nl.load(x[:, 0:64]) if nl.is_hbm(x.buffer) else x
    """
    return buffer in (MemoryRegion.private_hbm, MemoryRegion.shared_hbm)


def is_on_chip(buffer: MemoryRegion) -> bool:
    """Whether the buffer is SBUF or PSUM.

    Example:
        a = x if nl.is_on_chip(x.buffer) else nl.load(x[:, 0:64])
    """
    return buffer.on_chip


def is_sbuf(buffer: MemoryRegion) -> bool:
    """Whether the buffer is SBUF.

    Example:
        a = nl.zeros((128, 64), dtype=nl.float32, buffer=nl.psum)
        b = a if nl.is_sbuf(a.buffer) else nl.copy(a)
    """
    return buffer is MemoryRegion.sbuf


def is_psum(buffer: MemoryRegion) -> bool:
    """Whether the buffer is PSUM.

    Example:
        acc = nl.zeros((128, 64), dtype=nl.float32, buffer=nl.psum)
        tile = nl.copy(acc) if nl.is_psum(acc.buffer) else acc
    """
    return buffer is MemoryRegion.psum


TILE_SIZES = Rule(
    "nl.tile_size",
    "nl.tile_size holds constants",
    fix="read one: nl.tile_size.pmax (partitions), nl.tile_size.psum_bank_fmax (fp32 of a PSUM bank)",
    page=page("api/nki.language.tile_size.html"),
)


class TileSize:
    """Hardware tile sizes of the current target: elements, or bytes where the name says so.

    Example:
        rows, columns = nl.tile_size.pmax, nl.tile_size.psum_bank_fmax
        tile = nl.load(x[0:rows, 0:columns])
    """

    def __call__(self, *_: Any, **__: Any) -> NoReturn:
        what = "nl.tile_size is no function"
        raise fail(TILE_SIZES, what, target=context.core().target, subject="nl.tile_size", error=NkiTypeError)

    @property
    def pmax(self) -> int:
        """Partitions."""
        return context.core().partitions

    @property
    def psum_fmax(self) -> int:
        """Deprecated: use :attr:`psum_bank_fmax`."""
        return self.psum_bank_fmax

    @property
    def psum_bank_fmax(self) -> int:
        """fp32 elements of one PSUM bank per partition."""
        return context.core().psum_bank_fmax

    @property
    def psum_bank_fmax_bytes(self) -> int:
        """Bytes of one PSUM bank per partition."""
        return context.core().psum_bank_bytes

    @property
    def psum_num_banks(self) -> int:
        """Usable PSUM banks."""
        return context.core().psum_banks

    @property
    def gemm_stationary_fmax(self) -> int:
        """Largest free size of a matmul's stationary operand."""
        return context.core().gemm_stationary_fmax

    @property
    def gemm_moving_fmax(self) -> int:
        """Largest free size of a matmul's moving operand (one bank)."""
        return context.core().gemm_moving_fmax

    @property
    def bn_stats_fmax(self) -> int:
        """Largest free size of ``bn_stats``."""
        return context.core().bn_stats_fmax

    @property
    def psum_min_align(self) -> int:
        """Byte alignment of PSUM addresses (value undocumented)."""
        return context.core().psum_min_align

    @property
    def sbuf_min_align(self) -> int:
        """Byte alignment of SBUF addresses (value undocumented)."""
        return context.core().sbuf_min_align

    @property
    def sbuf_size_bytes(self) -> int:
        """SBUF bytes of all partitions."""
        return context.core().sbuf_size_bytes

    @property
    def sbuf_fmax_bytes(self) -> int:
        """Usable SBUF bytes per partition."""
        return context.core().sbuf_usable_bytes

    @property
    def sbuf_fmax(self) -> int:
        """Usable fp32 elements per SBUF partition."""
        return context.core().sbuf_usable_bytes // 4

    @property
    def total_available_sbuf_size(self) -> int:
        """Deprecated: use :attr:`sbuf_fmax_bytes`."""
        return self.sbuf_fmax_bytes


tile_size = TileSize()


__all__ = [
    "NKIObject", "affine_range", "device_print", "ds", "is_hbm", "is_on_chip", "is_psum", "is_sbuf",
    "no_reorder", "num_programs", "program_id", "program_ndim", "sequential_range", "static_range", "tile_size",
]  # fmt: skip
