-- Empty exhausted slots whose history is old or large enough -> what was done.
select {schema}.prune(%(retention_s)s::float8, %(history_bytes)s::bigint) as done
