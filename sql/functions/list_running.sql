-- list_running(queue, kind, limit, before) -> the part of list_jobs for attempts that run in the ring: by open receipts.
-- Guard: none. Locks: none. Errors: none.
create or replace function {schema}.list_running(p_queue text, p_kind text, p_limit int, p_before bigint)
returns table(
    id bigint, kind text, queue text, state text, priority smallint, attempt smallint, max_attempts smallint,
    run_at timestamptz, created_at timestamptz, attempted_at timestamptz, finalized_at timestamptz, args json,
    metadata json, tags text[], ordering_key text, errors jsonb, snoozes int, run_lease bigint, reason text,
    runtime_id uuid, dead boolean, progress json, deadline_s float8)
language plpgsql stable
set search_path = {schema}, pg_catalog, pg_temp
set jit = off
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
as $$
#variable_conflict use_column
declare
    s record;
begin
    for s in
        select r.slot, r.open_from from slots as r where r.state in ('current', 'sealed') order by r.generation desc
    loop
        case s.slot
{each_slot}
        when {slot} then
            return query
            select
                b.job_id, b.kind, b.queue, 'running', b.priority, (b.attempt + 1)::smallint, b.max_attempts,
                {schema}.readable_time(b.run_at), {schema}.readable_time(b.created_at), o.claimed_at, null::timestamptz, b.args, b.metadata, b.tags,
                b.ordering_key, b.errors, b.snoozes, b.run_lease + 1, null::text, o.runtime_id, false,
                coalesce(
                    (select s.progress from attempt_state as s
                     where s.job_id = b.job_id and s.run_lease = b.run_lease + 1),
                    b.progress), b.deadline_s
            from open_receipts_{slot}(s.open_from) as o
            cross join lateral bodies_{slot}(array[o.receipt_id], array[o.open_mask]) as b
            where (p_queue is null or o.queue = p_queue) and (p_kind is null or b.kind = p_kind)
                and b.job_id < p_before
            order by b.job_id desc
            limit p_limit;
{end_slot}
        end case;
    end loop;
end
$$;
