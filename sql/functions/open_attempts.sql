-- open_attempts(runtime) -> a row per receipt of that runtime with an open attempt, and one per moved attempt (open_mask has the
-- one bit of its index; job_ids and leases stand at their indexes, the others null).
-- Guard: none. Locks: none. Errors: none. Reads receipts from the slot's open_from on, in current and sealed slots.
create or replace function {schema}.open_attempts(p_runtime uuid)
returns table(
    slot int, receipt_id bigint, nonce bigint, open_mask bigint, request_id bigint, age_s float8, job_ids bigint[],
    leases bigint[])
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
        select r.slot, r.open_from from slots as r where r.state in ('current', 'sealed') order by r.generation
    loop
        case s.slot
{each_slot}
        when {slot} then
            return query
            select
                o.slot, o.receipt_id, o.nonce, o.open_mask, o.request_id,
                extract(epoch from clock_timestamp() - o.claimed_at)::float8, o.job_ids,
                coalesce(o.leases, array_fill(1::bigint, array[cardinality(o.job_ids)]))
            from open_receipts_{slot}(s.open_from) as o
            where o.runtime_id = p_runtime;
{end_slot}
        end case;
    end loop;
    return query
    select
        l.slot::int, l.receipt_id, l.nonce, 1::bigint << l.idx, l.request_id,
        extract(epoch from clock_timestamp() - l.claimed_at)::float8,
        array_fill(null::bigint, array[l.idx::int]) || l.job_id,
        array_fill(null::bigint, array[l.idx::int]) || (l.run_lease + 1)
    from leases as l
    where l.runtime_id = p_runtime;
end
$$;
