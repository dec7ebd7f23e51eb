-- settle_keys(job_ids, keys, masks, states) -> nothing. For jobs that have just come into these states: a key that the mask gives
-- up there is dropped; one that an end keeps is taken where it is free (an end is an end, whoever holds its key).
-- Guard: the caller's, which moved the jobs. Locks: as key_pass. Errors: 40P01.
create or replace function {schema}.settle_keys(p_job_ids bigint[], p_keys bytea[], p_masks int[], p_states text[])
returns void
language plpgsql volatile
set search_path = {schema}, pg_catalog, pg_temp
set jit = off
set plan_cache_mode = force_generic_plan
as $$
declare
    g record;
    t record;
begin
    select array_agg(k.key) as keys, array_agg(k.job_id) as jobs into t
    from unnest(p_job_ids, p_keys, p_masks, p_states) as k(job_id, key, mask, state)
    where k.key is not null and states_hold(k.mask, k.state) and k.state in ('completed', 'failed', 'cancelled');
    if t.keys is not null then
        perform key_pass(t.keys, t.jobs, array_fill(true, array[cardinality(t.keys)]));
    end if;
    select array_agg(k.key) as keys, array_agg(k.job_id) as jobs into g
    from unnest(p_job_ids, p_keys, p_masks, p_states) as k(job_id, key, mask, state)
    where k.key is not null and not states_hold(k.mask, k.state);
    if g.keys is not null then
        perform drop_keys(g.keys, g.jobs);
    end if;
end
$$;
