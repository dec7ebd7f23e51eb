"""Races between what can end a wait for a callback, judged by a ledger outside of pool and database."""
