"""The SQL files that `awa_pool.sqlfiles` reads; nothing to import here."""
