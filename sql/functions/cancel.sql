-- cancel(id) -> 'cancelled'. What runs is told so (a note to its dispatcher) and its result will be stale.
-- Arrow: scheduled | retryable | available | running -> cancelled.
-- Guard: the job's row, its lane's cursor, or its attempt's bit: whichever holds it. Locks: that row; the lane of a ready job.
-- Errors: AW002; AW004 no such job; AW005 naming the state of one that has ended; 55P03 when another session kept it locked for 2 s.
create or replace function {schema}.cancel(p_job_id bigint) returns text
language plpgsql volatile
set search_path = {schema}, pg_catalog, pg_temp
set jit = off
set lock_timeout = '2s'
as $$
declare
    v_done text;
    v_state text;
    v_deadline timestamptz := clock_timestamp() + interval '2 s';
begin
    perform require_read_committed('cancel');
    loop
        v_done := cancel_stored(p_job_id);
        if v_done is null then
            v_done := cancel_in_ring(p_job_id);
        end if;
        if v_done = 'done' then
            return 'cancelled';
        end if;
        -- Neither here nor there: it moved between the looks, or another session holds it for a moment.
        select j.state into v_state from job(p_job_id) as j;
        if not found then
            raise exception 'no job has the id %', p_job_id using errcode = 'AW004';
        elsif v_state in ('completed', 'failed', 'cancelled') then
            raise exception 'job % is % already', p_job_id, v_state using errcode = 'AW005', detail = v_state;
        end if;
        if clock_timestamp() > v_deadline then
            raise exception 'job % is held by another session', p_job_id using errcode = 'lock_not_available';
        end if;
        perform pg_sleep(0.005);
    end loop;
end
$$;
