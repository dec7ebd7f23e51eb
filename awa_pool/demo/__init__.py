"""The demo: measure the standard library of the running Python in a pool of worker processes."""
