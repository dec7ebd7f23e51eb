-- complete_yielding(slots, receipts, nonces, masks) -> per receipt: done, stale, busy of those attempts among these whose
-- completion changes who holds their job's unique key. The part of complete that sees to keys first.
-- Arrow: running -> completed. Guard, locks, errors: as end_attempts; AW006 for a slot that is none.
create or replace function {schema}.complete_yielding(
    p_slots int[], p_receipts bigint[], p_nonces bigint[], p_masks bigint[]
) returns table(receipt_id bigint, nonce bigint, done bigint, stale bigint, busy bigint)
language plpgsql volatile
set search_path = {schema}, pg_catalog, pg_temp
set jit = off
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
as $$
#variable_conflict use_column
declare
    g record;
    v record;
    v_slots int[] := '{}';
    v_receipts bigint[] := '{}';
    v_nonces bigint[] := '{}';
    v_indexes int[] := '{}';
    v_jobs bigint[] := '{}';
    v_leases bigint[] := '{}';
begin
    for g in
        select u.slot, array_agg(u.receipt_id) as receipts, array_agg(u.nonce) as nonces, array_agg(u.mask) as masks
        from unnest(p_slots, p_receipts, p_nonces, p_masks) as u(slot, receipt_id, nonce, mask)
        group by u.slot
        order by u.slot
    loop
        case g.slot
{each_slot}
        when {slot} then
            select
                array_agg({slot}) as slots, array_agg(y.receipt_id) as receipts, array_agg(y.nonce) as nonces,
                array_agg(y.idx) as indexes, array_agg(y.job_id) as jobs, array_agg(y.run_lease) as leases
            into v
            from yielding_{slot}(g.receipts, g.nonces, g.masks) as y;
{end_slot}
        else raise exception 'no slot is called %', g.slot using errcode = 'AW006';
        end case;
        v_slots := v_slots || v.slots;
        v_receipts := v_receipts || v.receipts;
        v_nonces := v_nonces || v.nonces;
        v_indexes := v_indexes || v.indexes;
        v_jobs := v_jobs || v.jobs;
        v_leases := v_leases || v.leases;
    end loop;
    if v_slots = '{}' then
        return;
    end if;
    return query
    select
        v_receipts[e.item], v_nonces[e.item],
        coalesce(bit_or(1::bigint << v_indexes[e.item]) filter (where e.status = 'done'), 0),
        coalesce(bit_or(1::bigint << v_indexes[e.item]) filter (where e.status = 'stale'), 0),
        coalesce(bit_or(1::bigint << v_indexes[e.item]) filter (where e.status = 'busy'), 0)
    from end_attempts(
        array(select i from generate_subscripts(v_slots, 1) as i), v_slots, v_receipts, v_nonces, v_indexes, v_jobs,
        v_leases, array_fill('completed'::text, array[cardinality(v_slots)]),
        array_fill(null::float8, array[cardinality(v_slots)]), array_fill(null::jsonb, array[cardinality(v_slots)]),
        array_fill(null::text, array[cardinality(v_slots)])) as e
    group by 1, 2;
end
$$;
