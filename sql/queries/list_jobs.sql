-- Newest jobs first, with filters (null: any); page on with the last id seen.
select
    id, kind, queue, state, priority, attempt, max_attempts, run_at, created_at, attempted_at, finalized_at,
    args::text, metadata::text, tags, ordering_key, errors::text, snoozes, run_lease, reason, runtime_id, dead,
    progress::text, deadline_s
from {schema}.list_jobs(%(state)s::text, %(queue)s::text, %(kind)s::text, %(limit)s::int, %(before_id)s::bigint)
