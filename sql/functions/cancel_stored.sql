-- cancel_stored(id) -> 'done', or null when the job is in none of the tables of rows. The part of cancel for deferred,
-- returned and moved jobs. Guard, locks: the job's row. Errors: none.
create or replace function {schema}.cancel_stored(p_job_id bigint) returns text
language plpgsql volatile
set search_path = {schema}, pg_catalog, pg_temp
set jit = off
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
as $$
declare
    v_receipt_id bigint;
    v_run_lease bigint;
begin
    with deferred as (
        delete from jobs_deferred where job_id = p_job_id
        returning job_id, queue, priority, kind, args, attempt::int, max_attempts, run_lease, run_at, created_at,
            metadata, tags, ordering_key, errors, snoozes, deadline_s, unique_key, unique_states, progress,
            null::bigint as receipt_id
    ),
    returned as (
        delete from jobs_returned where job_id = p_job_id
        returning job_id, queue, priority, kind, args, attempt::int, max_attempts, run_lease, run_at, created_at,
            metadata, tags, ordering_key, errors, snoozes, deadline_s, unique_key, unique_states, progress,
            null::bigint as receipt_id
    ),
    moved as (
        delete from leases where job_id = p_job_id
        returning job_id, queue, priority, kind, args, attempt + 1 as attempt, max_attempts,
            run_lease + 1 as run_lease, run_at, created_at, metadata, tags, ordering_key, errors, snoozes, deadline_s,
            unique_key, unique_states, progress, receipt_id
    ),
    taken as (
        select * from deferred union all select * from returned union all select * from moved
    ),
    settled as materialized (
        select
            t.receipt_id, t.run_lease,
            settle_bodies(
                array[row(
                    t.job_id, t.queue, t.priority, t.kind, t.args, t.attempt, t.max_attempts, t.run_lease, t.run_at,
                    t.created_at, t.metadata, t.tags, t.ordering_key, t.errors, t.snoozes, t.deadline_s, t.unique_key,
                    t.unique_states, t.progress)::body],
                array[5], array[null::float8], array['cancelled_by_hand'], array['cancelled'])
        from taken as t
    )
    select s.receipt_id, s.run_lease into v_receipt_id, v_run_lease from settled as s;
    if not found then
        return null;
    end if;
    if v_receipt_id is not null then
        perform pg_notify('awa_pool', format('cancel %s %s %s', p_job_id, v_run_lease, v_receipt_id));
    end if;
    return 'done';
end
$$;
