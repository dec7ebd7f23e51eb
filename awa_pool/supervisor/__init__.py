"""The parent of a pool: starts, watches, replaces and stops all other processes. Runs no user code, holds no job."""
