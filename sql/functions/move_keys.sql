-- move_keys(job_ids, keys, masks, froms, to) -> (place, holder) of the jobs that cannot go from their state into the state `to`,
-- as another job holds their key; holder is null where another session is about to decide: try again. Of all others the
-- keys are seen to: taken, given up or left. Jobs without a key (null) may go.
-- For states in which a job waits or runs; ends are settle_keys' business. Comes before the jobs are moved.
-- Guard: the caller's, which holds the jobs' rows. Locks: as key_pass. Errors: 40P01.
create or replace function {schema}.move_keys(
    p_job_ids bigint[], p_keys bytea[], p_masks int[], p_froms text[], p_to text
) returns table(place int, holder bigint)
language plpgsql volatile
set search_path = {schema}, pg_catalog, pg_temp
set jit = off
set plan_cache_mode = force_generic_plan
as $$
#variable_conflict use_column
declare
    v record;
begin
    -- A job that holds its key by an end that came in between is asked too: it may not have got it there.
    select array_agg(k.place::int) as places, array_agg(k.key) as keys, array_agg(k.job_id) as jobs into v
    from unnest(p_job_ids, p_keys, p_masks, p_froms) with ordinality as k(job_id, key, mask, state, place)
    where k.key is not null and states_hold(k.mask, p_to)
        and (not states_hold(k.mask, k.state) or k.state in ('completed', 'failed', 'cancelled'));
    if v.places is not null then
        return query
        select v.places[p.place], p.holder
        from key_pass(v.keys, v.jobs, array_fill(true, array[cardinality(v.keys)])) as p
        where p.verdict in ('held', 'busy');
    end if;
    select array_agg(k.key) as keys, array_agg(k.job_id) as jobs into v
    from unnest(p_job_ids, p_keys, p_masks) as k(job_id, key, mask)
    where k.key is not null and not states_hold(k.mask, p_to);
    if v.keys is not null then
        perform drop_keys(v.keys, v.jobs);
    end if;
end
$$;
