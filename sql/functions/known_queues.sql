-- known_queues() -> the names of all queues with settings, work or history, by one index step per name and table.
-- Guard: none. Locks: none. Errors: none.
create or replace function {schema}.known_queues() returns setof text
language plpgsql stable
set search_path = {schema}, pg_catalog, pg_temp
set jit = off
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
as $$
declare
    v_name text;
    v_names text[] := '{}';
    v_next text;
    v_slot int;
begin
    loop  -- the smallest name beyond the last one, whatever the table
        select min(n.queue) into v_next
        from (
            (select q.queue from queues as q where v_name is null or q.queue > v_name order by q.queue limit 1)
            union all
            (select d.queue from jobs_deferred as d
             where d.queue > coalesce(v_name, '') order by d.queue limit 1)
            union all
            (select b.queue from jobs_returned as b
             where b.queue > coalesce(v_name, '') order by b.queue limit 1)
            union all
            (select l.queue from leases as l where l.queue > coalesce(v_name, '') order by l.queue limit 1)
            union all
            (select f.queue from jobs_finished as f
             where f.queue > coalesce(v_name, '') order by f.queue limit 1)
            union all
            (select x.queue from jobs_dead as x where x.queue > coalesce(v_name, '') order by x.queue limit 1)
        ) as n;
        exit when v_next is null;
        v_name := v_next;
        v_names := v_names || v_name;
    end loop;
    for v_slot in select s.slot from slots as s where s.state <> 'free' loop
        v_names := v_names || array(select q from queues_of_slot(v_slot) as q);
    end loop;
    return query select distinct n from unnest(v_names) as n order by n;
end
$$;
