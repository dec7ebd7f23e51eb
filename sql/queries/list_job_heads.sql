-- As list_jobs, without args and metadata, which may be megabytes each.
select
    id, kind, queue, state, priority, attempt, max_attempts, run_at, created_at, attempted_at, finalized_at,
    null::text as args, null::text as metadata, tags, ordering_key, errors::text, snoozes, run_lease, reason, runtime_id,
    dead, progress::text, deadline_s
from {schema}.list_jobs(%(state)s::text, %(queue)s::text, %(kind)s::text, %(limit)s::int, %(before_id)s::bigint)
