-- completed_counts_{slot}() -> (queue, completed, estimated) of the history in slot {slot}: exact while the records of
-- completions fit into 64 pages, beyond that estimated from a sample of that size.
-- Guard: none. Locks: none. Errors: none.
create or replace function {schema}.completed_counts_{slot}()
returns table(queue text, completed bigint, estimated boolean)
language plpgsql stable
set search_path = {schema}, pg_catalog, pg_temp
set jit = off
set plan_cache_mode = force_generic_plan
as $$
#variable_conflict use_column
declare
    v_share float8 := least(
        1.0, 64.0 * 8192 / greatest(pg_relation_size('completions_{slot}'::regclass), 8192));
begin
    return query
    select r.queue, (sum(bit_count_of(c.mask)) / v_share)::bigint, v_share < 1
    from completions_{slot} as c tablesample system (v_share * 100) repeatable (1)
    join receipts_{slot} as r on r.receipt_id = c.receipt_id
    where c.outcome = 1
    group by r.queue;
end
$$;
