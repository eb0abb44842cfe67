"""Several cores that run one kernel together: logical NeuronCores that share HBM, and ranks that do not."""

from nki_sim.cores.crew import interleaved, is_interleaved
from nki_sim.cores.team import Team

__all__ = ["Team", "interleaved", "is_interleaved"]
