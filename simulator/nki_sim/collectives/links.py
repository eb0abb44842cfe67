"""What collectives cost on the links between chips: estimates from documented figures."""

from __future__ import annotations

from nki_sim.hw import NeuronCore


def link_ns(core: NeuronCore, cores: int, ranks: int, size: float, hops: int) -> float:
    """ns of a collective.

    The runtime chooses among algorithms; the two ends of its range are taken here, whichever is faster: a ring, which goes
    hop by hop at full bandwidth, and a mesh, in which all ranks send to all at once over shared links.

    Args:
        cores: NeuronCores of a rank, 1 or 2. ranks: that work together.
        size: bytes that each rank sends around the ring. hops: steps of the ring, one after the other.
    """
    if ranks == 1:
        return 0.0
    links = core.links
    bandwidth = links.gb_s_per_chip * cores / links.cores_per_chip  # GB/s are bytes per ns
    ring = hops * links.hop_ns + size / bandwidth
    mesh = links.hop_ns + size / bandwidth * max(1.0, ranks / 4)  # on a ring of links, a message passes a quarter of them
    return min(ring, mesh)
