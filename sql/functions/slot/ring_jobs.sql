-- ring_jobs_{slot}() -> the jobs whose place is slot {slot}: available, running or completed, with the columns of the view jobs.
-- Guard: none. Locks: none. Errors: none. Unfolds into the caller's statement, as ring_rows_{slot}.
create or replace function {schema}.ring_jobs_{slot}()
returns table(
    id bigint, kind text, queue text, state text, priority smallint, attempt smallint, max_attempts smallint,
    run_at timestamptz, created_at timestamptz, attempted_at timestamptz, finalized_at timestamptz, args json,
    metadata json, tags text[], ordering_key text, errors jsonb, snoozes int, run_lease bigint, reason text,
    runtime_id uuid, dead boolean, progress json, deadline_s float8)
language sql stable
as $$
    select
        r.job_id, r.kind, r.queue,
        case when r.receipt_id is null then 'available' when r.outcome is null then 'running' else 'completed' end,
        r.priority, (r.attempt + (r.receipt_id is not null)::int)::smallint, r.max_attempts,
        {schema}.readable_time(r.run_at), {schema}.readable_time(r.created_at),
        r.claimed_at, r.finalized_at, r.args, r.metadata, r.tags, r.ordering_key, r.errors, r.snoozes,
        r.run_lease + (r.receipt_id is not null)::int, null::text,
        case when r.outcome is null then r.runtime_id end, false,
        case
            when r.outcome is not null then null  -- what has completed makes no progress
            when r.receipt_id is null then r.progress
            else coalesce(
                (select s.progress from {schema}.attempt_state as s
                 where s.job_id = r.job_id and s.run_lease = r.run_lease + 1),
                r.progress)
        end, r.deadline_s
    from {schema}.ring_rows_{slot}() as r
    where not r.buried and (r.outcome is null or r.outcome = 1)
$$;
