"""How fast the simulator is: ``python -m benchmarks``. Nothing here is a test."""
