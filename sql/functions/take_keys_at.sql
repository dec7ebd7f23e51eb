-- take_keys_at(keys, job_ids, places) -> (place, 'taken' | 'held', holder) for each of these places of the arrays.
-- The part of key_pass that takes. Locks, errors: as take_keys.
create or replace function {schema}.take_keys_at(p_keys bytea[], p_job_ids bigint[], p_places int[])
returns table(place int, verdict text, holder bigint)
language plpgsql volatile
set search_path = {schema}, pg_catalog, pg_temp
as $$
#variable_conflict use_column
begin
    if p_places = '{}' then
        return;
    end if;
    return query
    with held as materialized (
        select p_places[t.place] as place, t.holder
        from take_keys(
            array(select p_keys[n] from unnest(p_places) with ordinality as o(n, i) order by o.i),
            array(select p_job_ids[n] from unnest(p_places) with ordinality as o(n, i) order by o.i)) as t
    )
    select o.place, case when h.place is null then 'taken' else 'held' end, h.holder
    from unnest(p_places) as o(place)
    left join held as h on h.place = o.place;
end
$$;
