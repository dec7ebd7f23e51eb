-- enqueue(…) -> job id. Public: any language may call it, in its own transaction.
-- Arrow: (new) -> available, or -> scheduled when run_at lies ahead; a run_at that has passed means now.
-- Guard: none. Locks: none but the new row's, and the unique key where one is given.
-- Errors: AW001 naming the field; AW007 where another job holds the key (detail: its id).
--
-- `p_unique_key`: 16 bytes that stand for what makes the job unique, held in the states of the mask `p_unique_states` (states_hold;
-- 31 if left out). `p_on_conflict` = 'skip' returns the holder's id instead of raising. docs/unique-jobs.md
--
-- The column defaults give id, xid and slot, in the order that keeps the row findable. Dispatchers are notified only
-- where one said lately that it waits for this queue; the note is a hint, polling is the delivery.
create or replace function {schema}.enqueue(
    p_kind text,
    p_args json,
    p_queue text default 'default',
    p_priority int default 2,
    p_max_attempts int default 25,
    p_run_at timestamptz default null,
    p_metadata json default null,
    p_tags text[] default null,
    p_ordering_key text default null,
    p_deadline_s float8 default null,
    p_unique_key bytea default null,
    p_unique_states int default null,
    p_on_conflict text default 'raise'
) returns bigint
language plpgsql volatile
set search_path = {schema}, pg_catalog, pg_temp
set jit = off
set plan_cache_mode = force_generic_plan
as $$
declare
    v_id bigint;
begin
    if num_nonnulls(p_unique_key, p_unique_states) > 0 then
        select u.job_id into v_id from put_unique(
            p_kind, p_args, p_queue, p_priority, p_max_attempts, p_run_at, p_metadata, p_tags, p_ordering_key,
            p_deadline_s, p_unique_key, p_unique_states, p_on_conflict) as u;
        return v_id;
    end if;
    if not (args_fit(p_args)
        and request_fits(p_kind, p_queue, p_priority, p_max_attempts, p_metadata, p_tags, p_ordering_key)
        and deadline_fits(p_deadline_s))
    then
        perform refuse_request('', coalesce(
            request_flaw(
                p_kind, p_args, p_queue, p_priority, p_max_attempts, p_metadata, p_tags, p_ordering_key),
            'deadline_s: must be 0.01 to 31536000 seconds'));
    end if;
    if p_run_at is not null then
        if run_at_flaw(p_run_at) is not null then
            perform refuse_request('', 'run_at: ' || run_at_flaw(p_run_at));
        end if;
        if p_run_at > clock_timestamp() then
            insert into jobs_deferred (
                job_id, kind, args, queue, priority, max_attempts, run_at, metadata, tags, ordering_key,
                deadline_s, state)
            values (
                nextval('job_id_seq'), p_kind, p_args, p_queue, p_priority, p_max_attempts, p_run_at, p_metadata,
                p_tags, p_ordering_key, p_deadline_s, 'scheduled')
            returning job_id into v_id;
            return v_id;
        end if;
    end if;
    insert into jobs_ready (kind, args, queue, priority, max_attempts, metadata, tags, ordering_key, deadline_s)
    values (p_kind, p_args, p_queue, p_priority, p_max_attempts, p_metadata, p_tags, p_ordering_key, p_deadline_s)
    returning job_id into v_id;
    if exists (select from queue_waiters as w where w.queue = p_queue and w.until > clock_timestamp()) then
        perform pg_notify('awa_pool', '');
    end if;
    return v_id;
end
$$;
