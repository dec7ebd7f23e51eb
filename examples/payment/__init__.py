"""Pay, then ship: a job that asks the outside world twice, in the three forms there are."""
