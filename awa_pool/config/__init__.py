"""What a pool can be told, from which place each value came, and which values are possible.

Layers, the later one wins: `[tool.awa-pool]` in pyproject.toml, `AWA_POOL_*` variables, what was given on the
command line (or to `client.run`). The database's address alone follows its own order, see `PoolConfig.dsn`.
Every refusal is one `ConfigError` line that names the flag, variable or key and says what to write instead.
"""
