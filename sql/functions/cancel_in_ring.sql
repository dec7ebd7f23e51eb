-- cancel_in_ring(id) -> 'done', or null when it did not hold the job (moved, ended, or locked elsewhere: look again).
-- The part of cancel for ready and running jobs.
-- Guard: the lane's cursor (by tombstone_job), or the attempt's bit. Locks: the lane, or the receipt. Errors: none.
create or replace function {schema}.cancel_in_ring(p_job_id bigint) returns text
language plpgsql volatile
set search_path = {schema}, pg_catalog, pg_temp
set jit = off
as $$
declare
    a record;
    v_status text;
begin
    select r.* into a from ring_attempt(p_job_id) as r;
    if not found or a.outcome is not null then
        return null;
    end if;
    if a.receipt_id is null then
        if tombstone_job(p_job_id) <> 'done' then
            return null;
        end if;
        perform settle_bodies(
            array[row(
                a.job_id, a.queue, a.priority, a.kind, a.args, a.attempt, a.max_attempts, a.run_lease, a.run_at,
                a.created_at, a.metadata, a.tags, a.ordering_key, a.errors, a.snoozes, a.deadline_s, a.unique_key,
                a.unique_states, a.progress)::body],
            array[5], array[null::float8], array['cancelled_by_hand'], array['cancelled']);
        return 'done';
    end if;
    select e.status into v_status
    from end_attempts(
        array[0], array[a.slot], array[a.receipt_id], array[a.nonce], array[a.idx], array[a.job_id],
        array[a.run_lease + 1], array['cancel'], array[null::float8], array[null::jsonb],
        array['cancelled_by_hand']) as e;
    if v_status <> 'done' then
        return null;
    end if;
    perform pg_notify('awa_pool', format('cancel %s %s %s', p_job_id, a.run_lease + 1, a.receipt_id));
    return 'done';
end
$$;
