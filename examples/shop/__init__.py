"""A small shop, for the documentation."""
