"""The machine in numbers: one frozen :class:`NeuronCore` per generation.

Every value carries the documentation page it is from as a bracketed tag; :data:`PAGES` spells the tags out. Where the
public documents have no number, the value is a cautious default and the field's name stands in ``unverified``, which
reports show.
"""

from __future__ import annotations

import math
import os
from dataclasses import dataclass, replace
from enum import IntEnum

DOCS = "https://awsdocs-neuron.readthedocs-hosted.com/en/latest/"

PAGES = {
    "A2": DOCS + "nki/guides/architecture/trainium_inferentia2_arch.html",
    "A3": DOCS + "nki/guides/architecture/trainium2_arch.html",
    "A4": DOCS + "nki/guides/architecture/trainium3_arch.html",
    "TILE": DOCS + "nki/api/nki.language.tile_size.html",
    "ALLOC": DOCS + "nki/library/kernel-utils/allocator.html",
    "MLP": "https://github.com/aws-neuron/nki-library (core/mlp/mlp_cte/mlp_cte_constants.py, tag 2.29)",
    "DMA": DOCS + "nki/get-started/about/nki-dma-overview.html",
    "LNC": DOCS + "nki/get-started/about/lnc.html",
    "ISA": DOCS + "nki/api/nki.isa.html",
    "BW": DOCS + "nki/deep-dives/nki-dma-bandwidth-guide.html",
    "DGE": DOCS + "nki/deep-dives/nki-dge.html",
    "OVERVIEW": DOCS + "tools/neuron-explorer/overview-summary-page.html",
    "SCHEMA": DOCS + "tools/neuron-explorer/profile-schema-reference.html",
    "TRN1": DOCS + "about-neuron/arch/neuron-hardware/trn1-arch.html",
    "TRN2": DOCS + "about-neuron/arch/neuron-hardware/trn2-arch.html",
    "TRN3": DOCS + "about-neuron/arch/neuron-hardware/trn3-arch.html",
    "CC": DOCS + "neuron-runtime/explore/intranode-collective-comm.html",
    "PERF": DOCS + "nki/deep-dives/nki_perf_guide.html",
    "SHOTS": DOCS + "nki/guides/how-to/kernel-optimization.html, and the figures of [DMA], [PERF] and rmsnorm_quant's design",
}


class nc_version(IntEnum):
    """NeuronCore generation, as ``nki.isa.nc_version``; ordered, as public kernels compare it. [ISA]"""

    gen2 = 2
    gen3 = 3
    gen4 = 4


@dataclass(frozen=True)
class Clocks:
    """Engine clocks in GHz."""

    tensor: float
    vector: float
    scalar: float
    gpsimd: float


@dataclass(frozen=True, kw_only=True)
class Latencies:
    """What time costs beside an instruction's cycles; ns unless a name says otherwise.

    The documents' prose has few of these. The others are read off the profiler screenshots that the documents show
    (durations printed there or measured in the picture), each from several of them; all are estimates. [SHOTS]
    """

    tensor: float
    """From the last moving row to its result, beside one cycle per column of stationary."""
    vector: float
    scalar: float
    gpsimd: float
    """From the last cycle of an instruction to its result: what profilers show beyond the cycles."""
    vector_gap_cycles: float
    """Between two instructions of the Vector Engine."""
    semaphore: float
    """From a result to an instruction on another engine that waits for it."""
    table_load: float
    """To load the Scalar Engine's table of another function."""
    dma_issue: float
    """Between two DMA instructions of one queue's engine. [DGE]"""
    dma_start: float = 1000.0
    """From trigger to first byte; with ``dma_end`` the 1300 ns of [BW]."""
    dma_end: float = 300.0
    """From last byte to an instruction that waits for it."""
    descriptor: float
    """For each descriptor beside its bytes."""
    dma_bytes_per_ns: float
    """Of one DMA engine, effective. [DMA]"""
    short_row_bytes_per_ns: float = math.inf
    """Of one DMA engine, for rows of at most 1 KiB."""
    throttle: float = 0.0
    """How long the tensor engine warms up from half its speed. [OVERVIEW]"""
    launch: float
    """Before the first and after the last instruction of a kernel."""


@dataclass(frozen=True, kw_only=True)
class Links:
    """What connects chips, for the cost of collectives: estimates."""

    gb_s_per_chip: float
    """Of a chip to the others of its instance. [TRN1] [TRN2] [TRN3]"""
    cores_per_chip: int
    """Physical NeuronCores. [A2] [A3] [A4]"""
    chips_per_node: int
    """Of one instance, or of a server of an UltraServer. [TRN1] [TRN2] [TRN3]"""
    hop_ns: float = 1500.0
    """From one rank to the next: 1 to 2 µs. [CC]"""


@dataclass(frozen=True, kw_only=True)
class NeuronCore:
    """One NeuronCore: memories in bytes, limits in elements, clocks in GHz."""

    target: str
    version: nc_version
    name: str
    sbuf_partition_bytes: int
    """Raw SBUF bytes in each of the 128 partitions."""
    sbuf_usable_bytes: int
    """Bytes per partition that kernels may allocate (``nl.tile_size.sbuf_fmax_bytes``)."""
    clocks: Clocks
    lnc: tuple[int, ...]
    """Logical NeuronCore degrees. [LNC]"""
    pe_tile_sizes: tuple[int, ...]
    """Row and column tile sizes of the tensor engine. [ISA]"""
    hwdge: bool
    """Whether descriptors can be generated in hardware. [A3]"""
    hbm_bytes: int
    """HBM of the device, which its cores share. [A2] [A3] [A4]"""
    dma_gb_s_per_engine: float
    """Theoretical bandwidth of one DMA engine, in GB/s. [DMA]"""
    hbm_gb_s: float
    """What one core can draw from HBM at most, as the profiler counts it: one stack. [SCHEMA]"""
    latencies: Latencies
    links: Links
    unverified: frozenset[str] = frozenset()

    partitions: int = 128  # [A2]
    quadrant: int = 32  # [A2] partitions that one engine access may start at
    psum_partition_bytes: int = 16 * 1024  # [A2] [A3] [A4]
    psum_banks: int = 8  # [A2]
    psum_bank_bytes: int = 2048  # [A2] [TILE]
    psum_bank_fmax: int = 512  # [TILE] fp32 elements in one bank
    gemm_stationary_fmax: int = 128  # [TILE]
    gemm_moving_fmax: int = 512  # [TILE]
    bn_stats_fmax: int = 512  # [TILE]
    sbuf_min_align: int = 4  # [TILE] names the attribute, not the value
    psum_min_align: int = 4  # [TILE] names the attribute, not the value
    dma_engines: int = 16  # [DMA]
    dma_queues: int = 16  # [DMA] per engine

    @property
    def gen(self) -> int:
        """Generation number: 2, 3 or 4."""
        return self.version.value

    @property
    def psum_usable_bytes(self) -> int:
        """PSUM bytes per partition in the usable banks."""
        return self.psum_banks * self.psum_bank_bytes

    @property
    def peak_flops(self) -> float:
        """Of bf16 matmuls, per second: what MFU is relative to. [SCHEMA]"""
        return 2.0 * self.partitions * self.partitions * self.clocks.tensor * 1e9

    @property
    def sbuf_size_bytes(self) -> int:
        """SBUF bytes of all partitions together."""
        return self.partitions * self.sbuf_partition_bytes

    def __str__(self) -> str:
        return f"{self.target} ({self.name})"


TRN1 = NeuronCore(
    target="trn1",
    version=nc_version.gen2,
    name="NeuronCore-v2",
    sbuf_partition_bytes=192 * 1024,  # [A2] 24 MiB / 128
    sbuf_usable_bytes=180_216,  # raw minus the reserve that [MLP] states for gen3
    clocks=Clocks(tensor=2.8, vector=1.12, scalar=1.4, gpsimd=1.4),  # [A2]
    lnc=(1,),
    pe_tile_sizes=(64, 128),
    hwdge=False,
    hbm_bytes=32 << 30,
    dma_gb_s_per_engine=27.2,
    hbm_gb_s=410.0,
    latencies=Latencies(
        tensor=141.0,  # MATMUL bf16 N=128: 188 ns with 1 column, 219 with 96, of which 45.7 stream
        vector=250.0,  # 181 instructions of fused_mamba: durations overlap by 45 µs; tensor_tensor N=8192: 2N + 340..358
        scalar=113.0,  # ACTIVATE N=1: 159 ns
        gpsimd=250.0,  # as the Vector Engine's
        vector_gap_cycles=64.0,  # fused_mamba: 53 to 94
        semaphore=30.0,  # a chain of ACTIVATE: 189 ns apart
        table_load=368.0,
        dma_issue=200.0,  # static queues, 180 to 350 as others measured
        descriptor=7.0,  # a packet of 4 B
        dma_bytes_per_ns=18.17,  # a packet of 32 KiB: 1810 ns; [DMA] says 17
        short_row_bytes_per_ns=6.44,  # three versions of the matmul tutorial draw 103 to 105 GB/s with 16 engines
        launch=18_000.0,
    ),
    links=Links(gb_s_per_chip=384.0, cores_per_chip=2, chips_per_node=16),  # [TRN1] has no bandwidth: 3/8 of [TRN2]'s
    unverified=frozenset({"sbuf_usable_bytes", "sbuf_min_align", "psum_min_align"}),
)

_NEWER = Latencies(
    tensor=111.0,  # fp32 passes of 512 and of 128 rows: 589 to 592 and 272 ns, of which 427 and 107 stream, 53 for columns
    vector=155.0,  # five instructions of 512 to 16384 elements: 153 to 167
    scalar=296.0,  # exp of 128 and of 4096 elements, squares of 16384: 293 to 299
    gpsimd=155.0,  # as the Vector Engine's
    vector_gap_cycles=103.0,  # 32 scalar_tensor_tensor of 512 elements, 641 ns apart
    semaphore=28.0,
    table_load=1285.0,
    dma_issue=600.0,  # [DGE]; 66 048 transfers in 39.9 ms
    descriptor=9.0,  # packets of 2 KiB and of 32 KiB: 97 and 1416 ns
    dma_bytes_per_ns=23.3,  # the same; [DMA] says 23
    throttle=3000.0,
    launch=15_000.0,
)

TRN2 = NeuronCore(
    target="trn2",
    version=nc_version.gen3,
    name="NeuronCore-v3",
    sbuf_partition_bytes=224 * 1024,  # [A3] 28 MiB / 128
    sbuf_usable_bytes=212_984,  # [MLP] 229376 - 16384 (dynamic DMA scratch) - 8
    clocks=Clocks(tensor=2.4, vector=0.96, scalar=1.2, gpsimd=1.2),  # [A3]
    lnc=(1, 2),
    pe_tile_sizes=(32, 64, 128),
    hwdge=True,
    hbm_bytes=96 << 30,
    dma_gb_s_per_engine=27.2,
    hbm_gb_s=716.0,
    latencies=_NEWER,
    links=Links(gb_s_per_chip=1024.0, cores_per_chip=8, chips_per_node=16),
    unverified=frozenset({"sbuf_usable_bytes", "sbuf_min_align", "psum_min_align"}),
)

TRN3 = NeuronCore(
    target="trn3",
    version=nc_version.gen4,
    name="NeuronCore-v4",
    sbuf_partition_bytes=256 * 1024,  # [A4] 32 MiB / 128
    sbuf_usable_bytes=245_752,  # raw minus the gen3 reserve; [ALLOC] prints an example without one
    clocks=Clocks(tensor=2.4, vector=1.2, scalar=1.2, gpsimd=1.2),  # [A4]
    lnc=(1, 2),
    pe_tile_sizes=(32, 64, 128),
    hwdge=True,
    hbm_bytes=144 << 30,
    dma_gb_s_per_engine=38.4,
    hbm_gb_s=1225.0,  # 4.9 TB/s in four stacks [A4]
    latencies=replace(_NEWER, dma_bytes_per_ns=33.0),  # [DMA]; the others as on trn2
    links=Links(gb_s_per_chip=2199.0, cores_per_chip=8, chips_per_node=4),  # 2048 GiB/s
    unverified=frozenset({"sbuf_usable_bytes", "sbuf_min_align", "psum_min_align"}),
)

CORES = (TRN1, TRN2, TRN3)

ALIASES = {
    "trn1": TRN1, "inf2": TRN1, "gen2": TRN1,
    "trn2": TRN2, "gen3": TRN2,
    "trn3": TRN3, "gen4": TRN3,
}  # fmt: skip

DEFAULT = TRN2
"""The target when neither an argument nor the environment names one. (The vendor's simulator takes trn3 there.)"""

PE_TRANSPOSE_VARIABLE = "NKI_DMA_TRANSPOSE_AS_PE_TRANSPOSE"
"""Set to true, the compiler keeps the last PSUM bank for transposes on trn2 and trn3. (The 0.6 documents say so.)"""

LNC_VARIABLE = "NEURON_LOGICAL_NC_CONFIG"
"""Logical cores of a kernel that is called without ``[n]``. [LNC]"""

TARGET_VARIABLE = "NEURON_PLATFORM_TARGET_OVERRIDE"


def core(target: str | NeuronCore | None = None) -> NeuronCore:
    """The NeuronCore that ``target`` names: trn1, inf2, gen2, trn2, gen3, trn3 or gen4.

    ``None`` reads ``NEURON_PLATFORM_TARGET_OVERRIDE``, then falls back to trn2.

    Raises:
        ValueError: the name is none of these.
    """
    if isinstance(target, NeuronCore):
        return target
    asked = target or os.environ.get(TARGET_VARIABLE) or DEFAULT.target
    found = ALIASES.get(asked.strip().lower())
    if found is None:
        where = "" if target else f" (from {TARGET_VARIABLE})"
        raise ValueError(f"unknown target {asked!r}{where}; known targets are {', '.join(ALIASES)}")
    if found.gen > 2 and os.environ.get(PE_TRANSPOSE_VARIABLE, "").lower() in ("1", "true"):
        return replace(found, psum_banks=found.psum_banks - 1)
    return found
