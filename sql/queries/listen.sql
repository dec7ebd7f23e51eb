-- Hear of new work and of cancelled attempts.
listen awa_pool
