-- Put one unique job in -> its id, or the holder's, and whether it is new.
select u.job_id, u.is_new
from {schema}.put_unique(
    %(kind)s::text, %(args)s::json, %(queue)s::text, %(priority)s::int, %(max_attempts)s::int,
    %(run_at)s::timestamptz, %(metadata)s::json, %(tags)s::text[], %(ordering_key)s::text, %(deadline_s)s::float8,
    %(unique_key)s::bytea, %(unique_states)s::int, %(on_conflict)s::text) as u
