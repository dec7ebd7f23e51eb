-- promote(limit) -> how many due jobs became available, and the seconds until the next is due (null: none waits).
-- Arrow: scheduled, retryable -> available; jobs of paused queues too. A row that no claim could take (written by other
-- software) becomes a failed job by itself, and the sweep goes on.
-- A job that would need its unique key then, while another job holds it, is set aside as cancelled.
-- Guard: the deferred row. Locks: deferred rows, oldest first, skip locked. Errors: AW002.
--
-- The row is deleted and inserted anew under this transaction's xid, in the slot that is current now: under its old xid
-- a claim would take it for one that it has passed.
create or replace function {schema}.promote(p_limit int) returns table(promoted int, next_due_s float8)
language plpgsql volatile
set search_path = {schema}, pg_catalog, pg_temp
set jit = off
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
as $$
#variable_conflict use_column
declare
    v_now timestamptz := clock_timestamp();  -- a variable: beside a call of the clock the index would be read to its end
    v_notify boolean;
    v_keyed bigint[];
begin
    perform require_read_committed('promote');
    with due as materialized (
        select
            d.job_id,
            d.unique_key is not null
                and states_hold(d.unique_states, d.state) <> states_hold(d.unique_states, 'available')
                and body_flaw(d.queue, d.priority, d.kind, d.attempt, d.max_attempts, d.tags, d.run_lease, d.snoozes)
                    is null as keyed
        from jobs_deferred as d
        where d.run_at <= v_now
        order by d.run_at, d.job_id
        limit p_limit
        for update skip locked
    ),
    taken as materialized (
        delete from jobs_deferred as d using due where d.job_id = due.job_id and not due.keyed
        returning d.*
    ),
    judged as materialized (
        select
            t.*,
            body_flaw(
                t.queue, t.priority, t.kind, t.attempt, t.max_attempts, t.tags, t.run_lease, t.snoozes) as flaw
        from taken as t
    ),
    put as (
        insert into jobs_ready (
            job_id, queue, priority, kind, args, attempt, max_attempts, run_lease, run_at, created_at, metadata, tags,
            ordering_key, errors, snoozes, deadline_s, unique_key, unique_states, progress)
        select
            j.job_id, j.queue, j.priority, j.kind, j.args, j.attempt, j.max_attempts, j.run_lease, j.run_at,
            j.created_at, j.metadata, j.tags, j.ordering_key, j.errors, j.snoozes, j.deadline_s, j.unique_key,
            j.unique_states, j.progress
        from judged as j
        where j.flaw is null
        order by j.run_at, j.job_id
        returning queue
    ),
    aside as materialized (
        select settle_bodies(
            array[row(
                j.job_id, j.queue, j.priority, j.kind, j.args, j.attempt, j.max_attempts, j.run_lease, j.run_at,
                j.created_at, j.metadata, j.tags, j.ordering_key,
                add_error(j.errors, jsonb_build_object('error', j.flaw, 'type', 'UnreadableJob'), j.attempt), j.snoozes,
                j.deadline_s, j.unique_key, j.unique_states, j.progress)::body],
            array[4], array[null::float8], array['unreadable']) as jobs
        from judged as j
        where j.flaw is not null
    )
    select
        (select count(*) from put)::int,
        exists (
            select from queue_waiters as w
            where w.until > clock_timestamp() and exists (select from put as p where p.queue = w.queue)),
        (select array_agg(d.job_id) from due as d where d.keyed)
    into promoted, v_notify, v_keyed
    from (select sum(a.jobs) from aside as a) as set_aside;
    if v_keyed is not null then
        promoted := promoted + promote_keyed(v_keyed);
        v_notify := true;
    end if;
    if v_notify then
        perform pg_notify('awa_pool', '');
    end if;
    select case when isfinite(d.run_at) then greatest(extract(epoch from d.run_at - clock_timestamp()), 0) end
    into next_due_s
    from jobs_deferred as d
    order by d.run_at, d.job_id
    limit 1;
    return next;
end
$$;
