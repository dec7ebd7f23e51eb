-- bury_ready(id, reason) -> whether it held the job: the part of move_to_dead for jobs that wait in a lane.
-- Guard: the lane's cursor (by tombstone_job). Locks: the lane. Errors: none.
create or replace function {schema}.bury_ready(p_job_id bigint, p_reason text) returns boolean
language plpgsql volatile
set search_path = {schema}, pg_catalog, pg_temp
set jit = off
as $$
declare
    a record;
begin
    select r.* into a from ring_attempt(p_job_id) as r;
    if not found or a.receipt_id is not null or tombstone_job(p_job_id, 'moved_to_dead') <> 'done' then
        return false;
    end if;
    perform bury(
        row(
            a.job_id, a.queue, a.priority, a.kind, a.args, a.attempt, a.max_attempts, a.run_lease, a.run_at,
            a.created_at, a.metadata, a.tags, a.ordering_key, a.errors, a.snoozes, a.deadline_s, a.unique_key,
            a.unique_states, a.progress)::body,
        p_reason);
    return true;
end
$$;
