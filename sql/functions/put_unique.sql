-- put_unique(the parameters of enqueue) -> (job_id, is_new): enqueue for a job with a unique key, and whether it is the job
-- that was put in; where not, job_id holds the key.
-- Arrow: (new) -> available | scheduled. Guard: the key. Locks: the key, waiting for transactions that are about to hold or
-- give up the same. Errors: AW001; AW007 under on_conflict = raise, with the holder's id as detail; 40001 as take_keys.
create or replace function {schema}.put_unique(
    p_kind text, p_args json, p_queue text, p_priority int, p_max_attempts int, p_run_at timestamptz, p_metadata json,
    p_tags text[], p_ordering_key text, p_deadline_s float8, p_unique_key bytea, p_unique_states int,
    p_on_conflict text
) returns table(job_id bigint, is_new boolean)
language plpgsql volatile
set search_path = {schema}, pg_catalog, pg_temp
set jit = off
set plan_cache_mode = force_generic_plan
as $$
#variable_conflict use_column
declare
    v_states int := coalesce(p_unique_states, 31);
    v_later boolean := coalesce(p_run_at > clock_timestamp(), false);
    v_id bigint;
    v_holder bigint;
begin
    perform refuse_request('', coalesce(f.flaw, 'deadline_s: must be 0.01 to 31536000 seconds'))
    from (
        select coalesce(
            request_flaw(
                p_kind, p_args, p_queue, p_priority, p_max_attempts, p_metadata, p_tags, p_ordering_key),
            'run_at: ' || run_at_flaw(p_run_at), unique_flaw(p_unique_key, p_unique_states, p_on_conflict)) as flaw
    ) as f
    where f.flaw is not null or not args_fit(p_args) or not deadline_fits(p_deadline_s);
    v_id := nextval('job_id_seq');
    if states_hold(v_states, case when v_later then 'scheduled' else 'available' end) then
        select t.holder into v_holder from take_keys(array[p_unique_key], array[v_id]) as t;
        if found then
            if p_on_conflict = 'raise' then
                raise exception 'job % holds the unique key', v_holder using errcode = 'AW007', detail = v_holder;
            end if;
            return query select v_holder, false;
            return;
        end if;
    end if;
    if v_later then
        insert into jobs_deferred (
            job_id, kind, args, queue, priority, max_attempts, run_at, metadata, tags, ordering_key, deadline_s,
            unique_key, unique_states, state)
        values (
            v_id, p_kind, p_args, p_queue, p_priority, p_max_attempts, p_run_at, p_metadata, p_tags, p_ordering_key,
            p_deadline_s, p_unique_key, v_states, 'scheduled');
    else
        insert into jobs_ready (
            job_id, kind, args, queue, priority, max_attempts, metadata, tags, ordering_key, deadline_s, unique_key,
            unique_states)
        values (
            v_id, p_kind, p_args, p_queue, p_priority, p_max_attempts, p_metadata, p_tags, p_ordering_key,
            p_deadline_s, p_unique_key, v_states);
        perform notify_waiters(array[p_queue]);
    end if;
    return query select v_id, true;
end
$$;
