-- move_to_dead(id, reason) -> 'failed': by hand, into the dead letter queue, whatever the queue's setting says.
-- Arrow: scheduled | retryable | available | cancelled | failed (in the history) -> failed (dead). What runs or has completed is
-- left alone, and what is dead already.
-- Guard: the job's row, or its lane's cursor. Locks: that row; the lane of a ready job.
-- Errors: AW002; AW004 no such job; AW005 naming the state; 55P03 when another session kept it locked.
create or replace function {schema}.move_to_dead(p_job_id bigint, p_reason text default 'manual') returns text
language plpgsql volatile
set search_path = {schema}, pg_catalog, pg_temp
set jit = off
as $$
declare
    j record;
    v_deadline timestamptz := clock_timestamp() + interval '2 s';
begin
    perform require_read_committed('move_to_dead');
    loop
        if bury_stored(p_job_id, p_reason) or bury_ready(p_job_id, p_reason) then
            return 'failed';
        end if;
        -- Neither here nor there: it moved between the looks, or another session holds it for a moment.
        select s.state, s.dead into j from job(p_job_id) as s;
        if not found then
            raise exception 'no job has the id %', p_job_id using errcode = 'AW004';
        elsif j.dead then
            raise exception 'job % is in the dead letter queue already', p_job_id
                using errcode = 'AW005', detail = j.state;
        elsif j.state in ('running', 'waiting_external', 'completed') then
            raise exception 'job % is %: a job that runs or has completed is not moved to the dead letter queue',
                p_job_id, j.state
                using errcode = 'AW005', detail = j.state;
        end if;
        if clock_timestamp() > v_deadline then
            raise exception 'job % is held by another session', p_job_id using errcode = 'lock_not_available';
        end if;
        perform pg_sleep(0.005);
    end loop;
end
$$;
