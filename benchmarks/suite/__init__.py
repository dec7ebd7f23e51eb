"""One module a benchmark: each holds a `BENCHMARK`, found by its presence here."""
