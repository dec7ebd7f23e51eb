"""awa-pool: a durable job queue inside PostgreSQL with a pool of worker processes."""
