-- keyed_bodies_<slot>(positions, receipts, indexes) -> those of these attempts whose jobs have unique keys, with what is to be
-- known of a body to see to its key. attempt and run_lease are the attempt's own. Locks: none. Errors: none.
create or replace function {schema}.keyed_bodies_{slot}(p_positions int[], p_receipts bigint[], p_indexes int[])
returns table(
    pos int, job_id bigint, run_lease bigint, unique_key bytea, unique_states int, attempt int, max_attempts int)
language plpgsql volatile
set jit = off
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set enable_hashjoin = off
set enable_mergejoin = off
as $$
#variable_conflict use_column
declare
    v_receipts bigint[];
    v_masks bigint[];
begin
    select array_agg(k.receipt_id), array_agg(k.mask) into v_receipts, v_masks
    from (
        select w.receipt_id, bit_or(1::bigint << w.idx) & r.keyed as mask
        from unnest(p_receipts, p_indexes) as w(receipt_id, idx)
        cross join lateral (
            select r.keyed from {schema}.receipts_{slot} as r where r.receipt_id = w.receipt_id limit 1) as r
        where r.keyed is not null
        group by w.receipt_id, r.keyed
    ) as k
    where k.mask <> 0;
    if v_receipts is null then
        return;
    end if;
    return query
    select
        w.pos, b.job_id, b.run_lease + 1, b.unique_key, b.unique_states::int, b.attempt + 1, b.max_attempts::int
    from {schema}.bodies_{slot}(v_receipts, v_masks) as b
    join unnest(p_positions, p_receipts, p_indexes) as w(pos, receipt_id, idx)
        on w.receipt_id = b.receipt_id and w.idx = b.idx;
end
$$;
