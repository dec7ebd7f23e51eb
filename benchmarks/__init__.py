"""Benchmarks of awa-pool against its peers: `python -m benchmarks NAME`. Never part of the test suite."""
