-- Seal the current slot and open the next free one -> what was done.
select {schema}.rotate(%(min_age_s)s::float8, %(max_bytes)s::bigint) as done
