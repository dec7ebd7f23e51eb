-- end_attempts(arrays, one entry per attempt, none named twice) -> (item, status, state). What finish, rescue_stale and cancel
-- share: first the unique keys that change hands (hold_keys), then slot by slot through the receipts, then, for bits that were
-- set already, through the leases. A duplicate of another job ends cancelled. What is asked again is 'busy'.
-- Guard: as finish. Locks: keys, then as finish. Errors: 40P01.
create or replace function {schema}.end_attempts(
    p_items int[], p_slots int[], p_receipts bigint[], p_nonces bigint[], p_indexes int[], p_job_ids bigint[],
    p_leases bigint[], p_outcomes text[], p_delays float8[], p_errors jsonb[], p_reasons text[]
) returns table(item int, status text, state text)
language plpgsql volatile
set search_path = {schema}, pg_catalog, pg_temp
set jit = off
set plan_cache_mode = force_generic_plan
as $$
#variable_conflict use_column
declare
    v record;
    v_items int[];
    v_statuses text[];
    v_states text[];
    v_late int[] := '{}';  -- positions in the arrays whose bits were set before
    v_returned boolean := false;
    h record;
    v_put_off int[] := '{}';  -- positions whose keys are about to change hands elsewhere
    v_ended int[];
begin
    select
        array_agg(k.pos) as positions, array_agg(k.unique_key) as keys, array_agg(k.job_id) as job_ids,
        array_agg(k.fate) as fates, array_agg(k.holder) as holders
    into h
    from hold_keys(p_slots, p_receipts, p_indexes, p_job_ids, p_leases, p_outcomes) as k;
    if h.positions is not null then
        v_ended := '{}';
        for i in 1 .. cardinality(h.positions) loop
            if h.fates[i] = 'busy' then
                v_put_off := v_put_off || h.positions[i];
            elsif h.fates[i] = 'duplicate' then
                p_outcomes[h.positions[i]] := 'cancel';
                p_reasons[h.positions[i]] := duplicate_reason(h.holders[i]);
            end if;
        end loop;
        return query select p_items[b.pos], 'busy', null::text from unnest(v_put_off) as b(pos);
    end if;
    for v in
        select
            w.slot, array_agg(w.pos::int) as positions, array_agg(w.receipt_id) as receipts, array_agg(w.nonce) as nonces,
            array_agg(w.idx) as indexes, array_agg(w.job_id) as job_ids, array_agg(w.run_lease) as leases,
            array_agg(w.outcome) as outcomes, array_agg(w.delay_s) as delays, array_agg(w.error) as errors,
            array_agg(w.reason) as reasons
        from unnest(p_slots, p_receipts, p_nonces, p_indexes, p_job_ids, p_leases, p_outcomes, p_delays, p_errors,
            p_reasons) with ordinality
            as w(slot, receipt_id, nonce, idx, job_id, run_lease, outcome, delay_s, error, reason, pos)
        where v_put_off = '{}' or w.pos <> all (v_put_off)
        group by w.slot
        order by w.slot
    loop
        case v.slot
{each_slot}
        when {slot} then
            select array_agg(f.item), array_agg(f.status), array_agg(f.state) into v_items, v_statuses, v_states
            from finish_{slot}(v.positions, v.receipts, v.nonces, v.indexes, v.job_ids, v.leases, v.outcomes,
                v.delays, v.errors, v.reasons) as f;
{end_slot}
        end case;
        v_late := v_late || array(
            select r.pos from unnest(v_items, v_statuses) as r(pos, status) where r.status = 'stale');
        v_returned := v_returned or 'available' = any(v_states);
        if v_ended is not null then
            v_ended := v_ended || array(
                select r.pos from unnest(v_items, v_statuses) as r(pos, status) where r.status = 'done');
        end if;
        return query
        select p_items[r.pos], r.status, r.state
        from unnest(v_items, v_statuses, v_states) as r(pos, status, state)
        where r.status <> 'stale';
    end loop;
    if v_late <> '{}' then
        select array_agg(f.item), array_agg(f.status), array_agg(f.state) into v_items, v_statuses, v_states
        from (
            select
                array_agg(w.pos::int) as positions, array_agg(w.receipt_id) as receipts, array_agg(w.nonce) as nonces,
                array_agg(w.idx) as indexes, array_agg(w.job_id) as job_ids, array_agg(w.run_lease) as leases,
                array_agg(w.outcome) as outcomes, array_agg(w.delay_s) as delays, array_agg(w.error) as errors,
                array_agg(w.reason) as reasons
            from unnest(p_receipts, p_nonces, p_indexes, p_job_ids, p_leases, p_outcomes, p_delays, p_errors,
                p_reasons) with ordinality
                as w(receipt_id, nonce, idx, job_id, run_lease, outcome, delay_s, error, reason, pos)
            where w.pos = any(v_late)
        ) as a
        cross join lateral finish_leases(
            a.positions, a.receipts, a.nonces, a.indexes, a.job_ids, a.leases, a.outcomes, a.delays, a.errors,
            a.reasons) as f;
        v_returned := v_returned or 'available' = any(v_states);
        if v_ended is not null then
            v_ended := v_ended || array(
                select r.pos from unnest(v_items, v_statuses) as r(pos, status) where r.status = 'done');
        end if;
        return query
        select p_items[r.pos], r.status, r.state
        from unnest(v_items, v_statuses, v_states) as r(pos, status, state);
    end if;
    if v_ended is not null then
        perform drop_keys(array_agg(k.key), array_agg(k.job_id))
        from unnest(h.positions, h.keys, h.job_ids, h.fates) as k(pos, key, job_id, fate)
        where k.fate = case when k.pos = any (v_ended) then 'gives' else 'took' end;
    end if;
    if v_returned and exists (select from queue_waiters as w where w.until > clock_timestamp()) then
        perform pg_notify('awa_pool', format('returned %s', p_receipts[1]));  -- a host that gave it back knows it again
    end if;
end
$$;
