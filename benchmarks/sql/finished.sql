-- How many jobs of a kind have completed with a row of their own, and how long after a moment the last did.
select count(*), coalesce(extract(epoch from max(finalized_at) - %(since)s::timestamptz), 0)::float8
from awa_pool.jobs_finished
where kind = %(kind)s and state = 'completed'
