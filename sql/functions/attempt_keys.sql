-- attempt_keys(arrays, one entry per attempt) -> (pos, …) of those whose jobs have unique keys; see keyed_bodies_<slot>. Looks in
-- the ring, then, in a statement of its own, among the moved attempts: the move commits both together.
-- Guard: none; what is read never changes while the attempt is open. Locks: none. Errors: none.
create or replace function {schema}.attempt_keys(
    p_slots int[], p_receipts bigint[], p_indexes int[], p_job_ids bigint[], p_leases bigint[]
) returns table(pos int, job_id bigint, unique_key bytea, unique_states int, attempt int, max_attempts int)
language plpgsql volatile
set search_path = {schema}, pg_catalog, pg_temp
set jit = off
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
as $$
#variable_conflict use_column
declare
    v record;
begin
    for v in
        select
            w.slot, array_agg(w.pos::int) as positions, array_agg(w.receipt_id) as receipts,
            array_agg(w.idx) as indexes
        from unnest(p_slots, p_receipts, p_indexes) with ordinality as w(slot, receipt_id, idx, pos)
        group by w.slot
        order by w.slot
    loop
        case v.slot
{each_slot}
        when {slot} then
            return query
            select k.pos, k.job_id, k.unique_key, k.unique_states, k.attempt, k.max_attempts
            from keyed_bodies_{slot}(v.positions, v.receipts, v.indexes) as k
            where k.job_id = p_job_ids[k.pos] and k.run_lease = p_leases[k.pos];
{end_slot}
        end case;
    end loop;
    if exists (select from leases as l where l.unique_key is not null) then
        return query
        select w.pos::int, l.job_id, l.unique_key, l.unique_states::int, l.attempt + 1, l.max_attempts::int
        from unnest(p_receipts, p_indexes) with ordinality as w(receipt_id, idx, pos)
        join leases as l on l.receipt_id = w.receipt_id and l.idx = w.idx
        where l.unique_key is not null and l.job_id = p_job_ids[w.pos] and l.run_lease + 1 = p_leases[w.pos];
    end if;
end
$$;
