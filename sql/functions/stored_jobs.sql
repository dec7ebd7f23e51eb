-- stored_jobs() -> the jobs whose place is a table of rows: deferred, returned, moved, ended and dead ones, with the columns of the
-- view jobs. Guard: none. Locks: none. Errors: none. Unfolds into the caller's statement: one SELECT, no SET clause.
create or replace function {schema}.stored_jobs()
returns table(
    id bigint, kind text, queue text, state text, priority smallint, attempt smallint, max_attempts smallint,
    run_at timestamptz, created_at timestamptz, attempted_at timestamptz, finalized_at timestamptz, args json,
    metadata json, tags text[], ordering_key text, errors jsonb, snoozes int, run_lease bigint, reason text,
    runtime_id uuid, dead boolean, progress json, deadline_s float8)
language sql stable
as $$
    select
        d.job_id, d.kind, d.queue, d.state, d.priority, d.attempt, d.max_attempts,
        {schema}.readable_time(d.run_at), {schema}.readable_time(d.created_at), null::timestamptz, null::timestamptz, d.args, d.metadata, d.tags, d.ordering_key, d.errors, d.snoozes,
        d.run_lease, null::text, null::uuid, false, d.progress, d.deadline_s
    from {schema}.jobs_deferred as d
    union all
    select
        b.job_id, b.kind, b.queue, 'available', b.priority, b.attempt, b.max_attempts,
        {schema}.readable_time(b.run_at), {schema}.readable_time(b.created_at), null::timestamptz, null::timestamptz, b.args, b.metadata, b.tags, b.ordering_key, b.errors, b.snoozes,
        b.run_lease, null::text, null::uuid, false, b.progress, b.deadline_s
    from {schema}.jobs_returned as b
    union all
    select
        l.job_id, l.kind, l.queue, l.state, l.priority, (l.attempt + 1)::smallint, l.max_attempts,
        {schema}.readable_time(l.run_at), {schema}.readable_time(l.created_at), l.claimed_at, null::timestamptz, l.args, l.metadata, l.tags, l.ordering_key, l.errors, l.snoozes,
        l.run_lease + 1, null::text, l.runtime_id, false, coalesce(
            (select s.progress from {schema}.attempt_state as s where s.job_id = l.job_id and s.run_lease = l.run_lease + 1),
            l.progress), l.deadline_s
    from {schema}.leases as l
    union all
    select
        f.job_id, f.kind, f.queue, f.state, f.priority, f.attempt, f.max_attempts,
        {schema}.readable_time(f.run_at), {schema}.readable_time(f.created_at), null::timestamptz, f.finalized_at, f.args, f.metadata, f.tags, f.ordering_key, f.errors, f.snoozes,
        f.run_lease, f.reason, null::uuid, false, f.progress, f.deadline_s
    from {schema}.jobs_finished as f
    union all
    select
        x.job_id, x.kind, x.queue, x.state, x.priority, x.attempt, x.max_attempts,
        {schema}.readable_time(x.run_at), {schema}.readable_time(x.created_at), null::timestamptz, x.finalized_at, x.args, x.metadata, x.tags, x.ordering_key, x.errors, x.snoozes,
        x.run_lease, x.reason, null::uuid, true, x.progress, x.deadline_s
    from {schema}.jobs_dead as x
$$;
