-- hold_follow_up_keys(follow_ups) -> (ids, fresh, keys, skipped): an id for each follow-up, whether it is to be put in, the key of
-- each (null: none), and [kind, holder] of those that are not.
-- A free key is taken. A key that has a holder is locked: the holder cannot give it up before this transaction has ended, or
-- the attempt would complete with neither its follow-up nor a holder of its key.
-- Locks: rows of unique_claims in key order, waiting as the caller's lock_timeout lets. Errors: class 22 for a key that is none;
-- 55P03.
create or replace function {schema}.hold_follow_up_keys(
    p_follow_ups json, out ids bigint[], out fresh boolean[], out keys bytea[], out skipped json)
language plpgsql volatile
set search_path = {schema}, pg_catalog, pg_temp
set jit = off
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
as $$
declare
    v_kinds text[];
    v_places int[];
    v_lost int[];
    v_holders bigint[];
    v_kept int[];
begin
    select
        array_agg(nextval('job_id_seq') order by i.place), array_agg(true), array_agg(i.kind order by i.place),
        array_agg(
            case when states_hold(coalesce(i.unique_states, 31),
                    case when parse_run_at(i.run_at) > statement_timestamp() then 'scheduled' else 'available' end)
                then decode(i.unique_key, 'hex') end order by i.place)
    into ids, fresh, v_kinds, keys
    from rows from (json_to_recordset(p_follow_ups) as (kind text, unique_key text, unique_states int, run_at text))
        with ordinality as i(kind, unique_key, unique_states, run_at, place);
    v_places := array(select k.place::int from unnest(keys) with ordinality as k(key, place) where k.key is not null);
    while v_places <> '{}' loop
        select array_agg(v_places[t.place]), array_agg(t.holder) into v_lost, v_holders
        from take_keys(
            array(select keys[p] from unnest(v_places) with ordinality as o(p, n) order by o.n),
            array(select ids[p] from unnest(v_places) with ordinality as o(p, n) order by o.n)) as t;
        exit when v_lost is null;
        -- A holder that went before it was locked leaves its key to be taken in the next round.
        v_kept := array(
            select l.place
            from (
                select u.unique_key, u.job_id
                from unique_claims as u
                where u.unique_key in (select keys[p] from unnest(v_lost) as o(p))
                order by u.unique_key
                for key share
            ) as u
            join unnest(v_lost, v_holders) as l(place, holder) on keys[l.place] = u.unique_key and l.holder = u.job_id);
        fresh := array(
            select f.is_fresh and f.place <> all (v_kept) from unnest(fresh) with ordinality as f(is_fresh, place) order by f.place);
        select json_agg(s.entry) into skipped
        from (
            select e as entry from json_array_elements(skipped) as e
            union all
            select json_build_array(v_kinds[l.place], l.holder)
            from unnest(v_lost, v_holders) as l(place, holder) where l.place = any (v_kept)
        ) as s;
        v_places := array(select p from unnest(v_lost) as o(p) where p <> all (v_kept));
    end loop;
end
$$;
