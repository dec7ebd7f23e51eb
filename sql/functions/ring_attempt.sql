-- ring_attempt(id) -> the row of the ring in which the job is available, running or completed, if any, with its slot and its
-- attempt's identity (receipt_id null: not claimed; outcome 1: completed). Guard: none. Locks: none. Errors: none.
create or replace function {schema}.ring_attempt(p_job_id bigint)
returns table(
    slot int, job_id bigint, queue text, priority smallint, kind text, args json, attempt smallint,
    max_attempts smallint, run_lease bigint, run_at timestamptz, created_at timestamptz, metadata json, tags text[],
    ordering_key text, errors jsonb, snoozes int, deadline_s float8, unique_key bytea, unique_states smallint,
    progress json, receipt_id bigint, nonce bigint, idx int, outcome smallint)
language plpgsql stable
set search_path = {schema}, pg_catalog, pg_temp
set jit = off
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
as $$
#variable_conflict use_column
declare
    v_slot int;
begin
    for v_slot in select s.slot from slots as s order by s.state = 'free', s.generation desc loop
        case v_slot
{each_slot}
        when {slot} then
            return query
            select
                {slot}, r.job_id, r.queue, r.priority, r.kind, r.args, r.attempt, r.max_attempts, r.run_lease,
                r.run_at, r.created_at, r.metadata, r.tags, r.ordering_key, r.errors, r.snoozes, r.deadline_s,
                r.unique_key, r.unique_states, r.progress, r.receipt_id, r.nonce, r.idx, r.outcome
            from ring_rows_{slot}() as r
            where r.job_id = p_job_id and not r.buried and (r.outcome is null or r.outcome = 1);
{end_slot}
        end case;
        if found then
            return;
        end if;
    end loop;
end
$$;
