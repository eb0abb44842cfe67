"""How a DMA instruction falls into descriptors, and what they cost its engines.

A descriptor is a run of bytes that is contiguous on both sides. Partitions are spread over the engines, eight each. What
an engine takes depends on the side in HBM: rows of neighbouring partitions that follow each other there go as one packet
(the profile of a [128 × 128] bf16 load shows eight rows of 256 bytes as one packet of 2 KiB).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from nki_sim.hw import Latencies
from nki_sim.program import Plan, Slot

PARTITIONS_PER_ENGINE = 8
"""128 partitions over 16 engines: the DMA overview."""
SHORT_ROW = 1024
TRANSPOSE_SHARE = {True: 0.9, False: 0.5}
"""Of a copy's bandwidth, from HBM and from SBUF: the trn2 architecture guide's ceilings."""
COMPUTE_SHARE = 0.5
"""Of a copy's bandwidth, before trn3: the trn3 architecture guide."""


@dataclass(frozen=True)
class DmaShape:
    """The descriptors of a DMA instruction.

    Attributes:
        bytes: moved in all.
        descriptors: runs that are contiguous on both sides; ``descriptor_bytes`` is the size of one.
        engines: DMA engines that take part.
        packet_bytes: of one packet of an engine; ``packets`` is how many each engine has at most.
    """

    bytes: int
    descriptors: int
    descriptor_bytes: int
    engines: int
    packets: int
    packet_bytes: int

    def engine_ns(self, latencies: Latencies) -> float:
        """ns that the busiest engine takes."""
        return self.packets * _packet_ns(self.packet_bytes, latencies)


def _packet_ns(size: int, latencies: Latencies) -> float:
    long = latencies.descriptor + size / latencies.dma_bytes_per_ns
    return max(long, min(size, SHORT_ROW) / latencies.short_row_bytes_per_ns)


def dma_shape(plan: Plan) -> DmaShape:
    """The descriptors of a DMA plan."""
    slots = [plan.slots[i] for i in (*plan.writes, *plan.reads)]
    tensors = [slot for slot in slots if slot.name.rstrip("0123456789") in ("dst", "src")]  # one, or src0, src1 …; no index
    total = max((_bytes(slot) for slot in tensors), default=0)
    run = max(1, min((_run(slot, slot.on_chip) for slot in tensors), default=1))
    engines = _engines(tensors, total)
    share = -(-total // engines)
    packet = max(1, min(share, min((_packet(slot) for slot in tensors), default=1)))
    return DmaShape(total, -(-total // run), run, engines, -(-share // packet), packet)


def engine_ns(plan: Plan, latencies: Latencies, gen: int) -> float:
    """ns that the busiest DMA engine takes for a plan."""
    ns = dma_shape(plan).engine_ns(latencies)
    if plan.instruction == "dma_transpose":
        return ns / TRANSPOSE_SHARE[not any(plan.slots[i].on_chip for i in plan.reads)]
    if plan.instruction == "dma_compute" and gen < 4:
        return ns / COMPUTE_SHARE
    return ns


def rows_bytes(plan: Plan) -> int:
    """Bytes that a DMA plan moves in each partition; 0 where no side is on chip."""
    on_chip = [plan.slots[i] for i in (*plan.writes, *plan.reads) if plan.slots[i].on_chip]
    return max((slot.itemsize * math.prod(slot.shape[1:]) for slot in on_chip), default=0)


def _bytes(slot: Slot) -> int:
    return slot.itemsize * math.prod(slot.shape)


def _run(slot: Slot, by_partition: bool) -> int:
    """Bytes that follow each other from the innermost dimension outwards, within a partition if ``by_partition``."""
    run = slot.itemsize
    first = 1 if by_partition else 0
    for n, stride in reversed(list(zip(slot.shape[first:], slot.strides[first:], strict=True))):
        if n != 1 and stride * slot.itemsize != run:
            break
        run *= n
    return run


def _packet(slot: Slot) -> int:
    """Bytes of one packet as far as this side goes: rows in SBUF do not cut a packet, steps within a row do."""
    run = _run(slot, slot.on_chip)
    row = slot.itemsize * math.prod(slot.shape[1:])
    return _bytes(slot) if slot.on_chip and run == row else run


def _engines(tensors: list[Slot], total: int) -> int:
    on_chip = [slot.shape[0] for slot in tensors if slot.on_chip]
    if on_chip:
        return min(16, -(-max(on_chip) // PARTITIONS_PER_ENGINE))
    return max(1, min(16, total // 2048))  # from HBM to HBM: as many as have something to do
