-- drop_dead(ids) -> those that were deleted from the dead letter queue; what another session holds is left.
-- Arrow: failed (dead) -> gone. Guard: the row. Locks: these rows in order of id, skip locked. Errors: none.
create or replace function {schema}.drop_dead(p_ids bigint[]) returns bigint[]
language plpgsql volatile
set search_path = {schema}, pg_catalog, pg_temp
set jit = off
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
as $$
declare
    v_gone bigint[];
begin
    with held as materialized (
        select x.job_id from jobs_dead as x where x.job_id = any (p_ids) order by x.job_id for update skip locked
    ),
    gone as (
        delete from jobs_dead as x using held as h where x.job_id = h.job_id returning x.job_id
    )
    select coalesce(array_agg(g.job_id), '{}') into v_gone from gone as g;
    return v_gone;
end
$$;
