"""A pool under blows: load, storm, ledger and judge of the `chaos` benchmark."""
