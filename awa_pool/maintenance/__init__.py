"""Housekeeping of the queue by one leader of all hosts: promotes, rescues, and turns the ring."""
