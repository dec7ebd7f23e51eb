-- One job by its id -> one row, or none.
select
    id, kind, queue, state, priority, attempt, max_attempts, run_at, created_at, attempted_at, finalized_at,
    args::text, metadata::text, tags, ordering_key, errors::text, snoozes, run_lease, reason, runtime_id, dead,
    progress::text, deadline_s
from {schema}.job(%(job_id)s::bigint)
