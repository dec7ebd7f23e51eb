-- The callback that a job waits for -> number, since, until; no row: none.
select number, since, until
from {schema}.callback_of(%(job_id)s::bigint)
