-- open_counts() -> running attempts per queue, those moved out of the ring included, and those that wait for a callback.
-- Guard: none. Locks: none. Errors: none. Reads receipts from the slot's open_from on, in current and sealed slots.
create or replace function {schema}.open_counts() returns table(queue text, running bigint, waiting bigint)
language plpgsql stable
set search_path = {schema}, pg_catalog, pg_temp
set jit = off
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
as $$
#variable_conflict use_column
declare
    s record;
    v_all jsonb := '{}';
    v_part jsonb;
begin
    for s in select r.slot, r.open_from from slots as r where r.state in ('current', 'sealed') loop
        case s.slot
{each_slot}
        when {slot} then
            select jsonb_object_agg(o.queue, o.running) into v_part
            from (
                select c.queue, sum(bit_count_of(c.open_mask)) as running
                from open_receipts_{slot}(s.open_from) as c
                group by c.queue
            ) as o;
{end_slot}
        end case;
        select jsonb_object_agg(k, coalesce((v_all ->> k)::bigint, 0) + coalesce((v_part ->> k)::bigint, 0))
        into v_all
        from (select jsonb_object_keys(v_all) as k union select jsonb_object_keys(v_part)) as n;
        v_all := coalesce(v_all, '{}');
    end loop;
    return query
    select n.queue, sum(n.running)::bigint, sum(n.waiting)::bigint
    from (
        select e.key as queue, e.value::bigint as running, 0 as waiting from jsonb_each_text(v_all) as e
        union all
        select l.queue, count(*) filter (where l.state = 'running'), count(*) filter (where l.state <> 'running')
        from leases as l
        group by l.queue
    ) as n
    group by n.queue;
end
$$;
