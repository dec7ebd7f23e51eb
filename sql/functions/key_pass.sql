-- key_pass(keys, job_ids, takes) -> (place, verdict, holder) for every entry. Takes keys, and locks those that are to be given
-- up, in one pass by key before its caller locks anything else; giving up (drop_keys) follows when the guard has held.
-- Taking: 'taken' now; 'own', held by this job before; 'held' by the job `holder`. Giving up: 'locked'; 'absent', not this
-- job's. Either: 'busy', another session's transaction is about to decide, or has the row: nothing was done, try again.
-- Locks: rows of unique_claims in key order; those to be taken are waited for, 200 ms in all and a moment each beyond that;
-- those to be given up are not. Errors: 40P01.
--
-- What is given up is deleted after everything was taken, so no two passes can wait for each other. A transaction that is
-- slow to commit its key costs those who want that key a try, and nobody else anything.
create or replace function {schema}.key_pass(p_keys bytea[], p_job_ids bigint[], p_takes boolean[])
returns table(place int, verdict text, holder bigint)
language plpgsql volatile
set search_path = {schema}, pg_catalog, pg_temp
set jit = off
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set lock_timeout = '200ms'
as $$
#variable_conflict use_column
declare
    v_own int[];
    v_places int[];
    v_one int;
begin
    return query
    with locked as materialized (
        select u.unique_key, u.job_id
        from unnest(p_keys, p_job_ids, p_takes) as w(unique_key, job_id, takes)
        join unique_claims as u on u.unique_key = w.unique_key and u.job_id = w.job_id
        where not w.takes
        order by u.unique_key
        for update of u skip locked
    )
    select
        w.place::int,
        case
            when l.job_id is not null then 'locked'
            when exists (
                select from unique_claims as u where u.unique_key = w.unique_key and u.job_id = w.job_id) then 'busy'
            else 'absent'
        end,
        null::bigint
    from unnest(p_keys, p_job_ids, p_takes) with ordinality as w(unique_key, job_id, takes, place)
    left join locked as l on l.unique_key = w.unique_key and l.job_id = w.job_id
    where not w.takes;
    -- What a job holds already is not taken: the row is not to be dropped should the guard miss.
    v_own := array(
        select w.place::int
        from unnest(p_keys, p_job_ids, p_takes) with ordinality as w(unique_key, job_id, takes, place)
        join unique_claims as u on u.unique_key = w.unique_key and u.job_id = w.job_id
        where w.takes);
    v_places := array(
        select w.place::int
        from unnest(p_takes) with ordinality as w(takes, place)
        where w.takes and w.place <> all (v_own)
        order by p_keys[w.place], w.place);
    return query select o.place, 'own', null::bigint from unnest(v_own) as o(place);
    begin
        return query select * from take_keys_at(p_keys, p_job_ids, v_places);
        return;
    exception
        when lock_not_available then
            perform set_config('lock_timeout', '5ms', true);  -- until this function returns
    end;
    foreach v_one in array v_places loop
        begin
            return query select * from take_keys_at(p_keys, p_job_ids, array[v_one]);
        exception
            when lock_not_available then
                place := v_one; verdict := 'busy'; holder := null;
                return next;
        end;
    end loop;
end
$$;
