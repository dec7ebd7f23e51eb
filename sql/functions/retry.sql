-- retry(id) -> 'available': by hand, now, with all attempts before it again; its errors are kept.
-- One that had ended loses its progress. run_lease goes on rising: no result of an attempt before counts for one after.
-- Arrow: failed (dead or not) | cancelled | retryable | scheduled -> available. Completed is never reopened, running is left alone.
-- Guard: the job's row. Locks: the job's row. Errors: AW002, AW004 no such job, AW005 naming the state, or what no
-- claim could hand out; 55P03 when another session kept it locked for 2 s.
--
-- Goes to jobs_returned and not to its lane: it is claimed first, and one transaction may cancel and retry a job any
-- number of times without meeting its own row again.
create or replace function {schema}.retry(p_job_id bigint) returns text
language plpgsql volatile
set search_path = {schema}, pg_catalog, pg_temp
set jit = off
set lock_timeout = '2s'
as $$
declare
    v record;
    v_state text;
begin
    perform require_read_committed('retry');
    for i in 1..100 loop
        with taken as (
            delete from jobs_deferred where job_id = p_job_id
            returning job_id, queue, priority, kind, args, max_attempts, run_lease, created_at, metadata, tags,
                ordering_key, errors, snoozes, deadline_s, unique_key, unique_states, progress, state
        ),
        reopened as (
            delete from jobs_finished where job_id = p_job_id and state in ('failed', 'cancelled')
            returning job_id, queue, priority, kind, args, max_attempts, run_lease, created_at, metadata, tags,
                ordering_key, errors, snoozes, deadline_s, unique_key, unique_states, null::json, state
        ),
        risen as (
            delete from jobs_dead where job_id = p_job_id
            returning job_id, queue, priority, kind, args, max_attempts, run_lease, created_at, metadata, tags,
                ordering_key, errors, snoozes, deadline_s, unique_key, unique_states, null::json, 'failed'
        ),
        body as materialized (
            select * from taken union all select * from reopened union all select * from risen
        ),
        put as (
            insert into jobs_returned (
                job_id, queue, priority, kind, args, max_attempts, run_lease, created_at, metadata, tags, ordering_key,
                errors, snoozes, deadline_s, unique_key, unique_states, progress, attempt, run_at)
            select
                b.job_id, b.queue, b.priority, b.kind, b.args, b.max_attempts, b.run_lease, b.created_at, b.metadata,
                b.tags, b.ordering_key, b.errors, b.snoozes, b.deadline_s, b.unique_key, b.unique_states, b.progress,
                0, clock_timestamp()
            from body as b
        )
        select
            b.queue, b.state, b.unique_key, b.unique_states::int as mask,
            body_flaw(b.queue, b.priority, b.kind, 0, b.max_attempts, b.tags, b.run_lease, b.snoozes) as flaw
        into v
        from body as b;
        if v.flaw is not null then
            raise exception 'job % cannot run: %', p_job_id, v.flaw using errcode = 'AW005', detail = v.flaw;
        elsif v.queue is not null then
            if v.unique_key is not null then
                perform refuse_duplicate(p_job_id, m.holder)
                from move_keys(array[p_job_id], array[v.unique_key], array[v.mask], array[v.state], 'available') as m;
            end if;
            perform notify_waiters(array[v.queue]);
            return 'available';
        end if;
        select j.state into v_state from job(p_job_id) as j;
        if not found then
            raise exception 'no job has the id %', p_job_id using errcode = 'AW004';
        elsif v_state not in ('scheduled', 'retryable', 'failed', 'cancelled') then
            raise exception 'job % is %: only failed, cancelled, retryable and scheduled jobs can be retried',
                p_job_id, v_state
                using errcode = 'AW005', detail = v_state;
        end if;
        -- it came there between the two looks: once more
    end loop;
    raise exception 'job % keeps moving', p_job_id using errcode = 'lock_not_available';
end
$$;
