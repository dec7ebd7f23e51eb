-- Delete dead jobs that are older than their queue keeps them -> what was done.
select {schema}.prune_dead(%(retention_s)s::float8, %(limit)s::int) as done
