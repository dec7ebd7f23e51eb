-- owe_outcomes(bodies, codes, reasons, causes) -> how many. For jobs whose attempts ended with no handler to hear of it: where a
-- pool has said that its app registered something for such an outcome, puts in a job of kind awa:outcome, in this
-- transaction, that a worker will evaluate: nothing is lost, and no user code holds up who ends attempts.
-- causes: 'lost' (a dead worker), 'stale_heartbeat', 'deadline_exceeded', 'expired_callback', 'callback' (answered from outside so that
-- the attempt ended), 'cancelled', 'moved' (to the dead letter queue);
-- null: a handler was there.
-- Arrow: (new) -> available. Guard: the caller's. Locks: the new rows. Errors: none of its own.
create or replace function {schema}.owe_outcomes(
    p_bodies {schema}.body[], p_codes int[], p_reasons text[], p_causes text[]
) returns int
language plpgsql volatile
set search_path = {schema}, pg_catalog, pg_temp
set jit = off
as $$
declare
    v_wanted jsonb;  -- kind -> the outcomes that any pool of the last day waits for
    v_count int;
    v_told text := current_setting('awa.outcomes_told', true);  -- 'specs': only hooks are to hear of it; 'yes': nobody
begin
    if v_told = 'yes' then
        return 0;
    end if;
    select jsonb_object_agg(w.kind, w.outcomes) into v_wanted
    from (
        select o.kind, jsonb_agg(distinct t.outcome) as outcomes
        from runtimes as r
        cross join lateral jsonb_each(
            case when jsonb_typeof(r.info -> 'outcomes') = 'object' then r.info -> 'outcomes' else '{}' end) as o(kind, outcomes)
        cross join lateral jsonb_array_elements_text(
            case when jsonb_typeof(o.outcomes) = 'array' then o.outcomes else '[]' end) as t(outcome)
        group by o.kind
    ) as w;
    if v_wanted is null then
        return 0;
    end if;
    insert into jobs_ready (kind, queue, priority, max_attempts, metadata, args)
    select
        'awa:outcome', o.queue, abs(o.priority), 3, json_build_object('awa:parent', o.job_id),
        json_build_object(
            'outcomes', o.outcomes, 'id', o.job_id, 'kind', o.kind, 'args', o.args, 'queue', o.queue,
            'priority', abs(o.priority), 'attempt', o.attempt, 'max_attempts', o.max_attempts, 'run_lease', o.run_lease,
            'metadata', o.metadata, 'tags', o.tags, 'ordering_key', o.ordering_key, 'snoozes', o.snoozes,
            'error', case when o.code = 6 then o.reason else coalesce(o.errors -> -1 ->> 'error', o.reason) end, 'reason', o.reason, 'cause', o.cause,
            'progress', o.progress, 'specs_told', coalesce(v_told = 'specs', false),
            'next_run_at', case
                when o.code = 6 then clock_timestamp()
                else (select d.run_at from jobs_deferred as d where d.job_id = o.job_id and o.code in (2, 7))
            end)
    from (
        select
            b.*,
            array(
                select w.outcome
                from unnest(
                    case
                        when b.code in (2, 7) and b.cause = 'lost' then array['retried']
                        when b.code in (2, 7) then array['rescued']
                        when b.code = 4 and b.cause in ('lost', 'moved', 'callback') then array['exhausted']
                        when b.code = 4 then array['rescued', 'exhausted']
                        when b.code = 5 then array['cancelled']
                        when b.code = 1 then array['completed']
                        when b.code = 6 and b.cause = 'callback' then array['retried']
                    end) as w(outcome)
                where v_wanted -> b.kind ? w.outcome
            ) as outcomes
        from rows from (unnest(p_bodies), unnest(p_codes), unnest(p_reasons), unnest(p_causes))
            as b(job_id, queue, priority, kind, args, attempt, max_attempts, run_lease, run_at, created_at, metadata,
                tags, ordering_key, errors, snoozes, deadline_s, unique_key, unique_states, progress, code, reason, cause)
        where b.cause is not null and v_wanted ? b.kind
    ) as o
    where o.outcomes <> '{}';
    get diagnostics v_count = row_count;
    if v_count > 0 and exists (select from queue_waiters as w where w.until > clock_timestamp()) then
        perform pg_notify('awa_pool', '');
    end if;
    return v_count;
end
$$;
