-- lost_attempts(stale, limit) -> open attempts whose runtime is gone, or is unknown and claimed them longer ago than the threshold (null: never).
-- An attempt without a runtime is parked and nobody's; one that waits with its handler is its runtime's. Guard: none. Locks: none. Errors: none.
create or replace function {schema}.lost_attempts(p_stale_s float8, p_limit int)
returns table(
    runtime_id uuid, slot int, receipt_id bigint, nonce bigint, idx int, job_id bigint, run_lease bigint)
language plpgsql stable
set search_path = {schema}, pg_catalog, pg_temp
set jit = off
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
as $$
#variable_conflict use_column
declare
    s record;
    v_left int := p_limit;
    v_got int;
begin
    for s in
        select r.slot, r.open_from from slots as r where r.state in ('current', 'sealed') order by r.generation
    loop
        case s.slot
{each_slot}
        when {slot} then
            return query
            select o.runtime_id, o.slot, o.receipt_id, o.nonce, b.idx, o.job_ids[b.idx + 1],
                coalesce(o.leases[b.idx + 1], 1)
            from open_receipts_{slot}(s.open_from) as o
            left join runtimes as r on r.runtime_id = o.runtime_id
            cross join lateral (
                select i as idx
                from generate_series(0, cardinality(o.job_ids) - 1) as i
                where o.open_mask & (1::bigint << i) <> 0
            ) as b
            where o.runtime_id is not null
                and (r.state = 'gone'
                    or (r.runtime_id is null
                        and o.claimed_at < clock_timestamp() - make_interval(secs => p_stale_s)))
            limit v_left;
{end_slot}
        end case;
        get diagnostics v_got = row_count;
        v_left := v_left - v_got;
        if v_left <= 0 then
            return;
        end if;
    end loop;
    return query
    select l.runtime_id, l.slot::int, l.receipt_id, l.nonce, l.idx::int, l.job_id, l.run_lease + 1
    from leases as l
    left join runtimes as r on r.runtime_id = l.runtime_id
    where l.runtime_id is not null
        and (r.state = 'gone'
            or (r.runtime_id is null and l.claimed_at < clock_timestamp() - make_interval(secs => p_stale_s)))
    limit v_left;
end
$$;
