-- key_state(job_id) -> (unique_key in hexadecimal, states, holder, release_at) of a job that has a key, or no row. holder: the
-- job that holds the key now, this one or another. Guard: none. Locks: none. Errors: none.
create or replace function {schema}.key_state(p_job_id bigint)
returns table(unique_key text, states int, holder bigint, release_at timestamptz)
language plpgsql stable
set search_path = {schema}, pg_catalog, pg_temp
set jit = off
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
as $$
#variable_conflict use_column
begin
    return query
    with body as materialized (
        select b.unique_key, b.unique_states from jobs_deferred as b where b.job_id = p_job_id
        union all
        select b.unique_key, b.unique_states from jobs_returned as b where b.job_id = p_job_id
        union all
        select b.unique_key, b.unique_states from leases as b where b.job_id = p_job_id
        union all
        select b.unique_key, b.unique_states from jobs_finished as b where b.job_id = p_job_id
        union all
        select b.unique_key, b.unique_states from jobs_dead as b where b.job_id = p_job_id
    ),
    found as (
        select * from body
        union all
        select r.unique_key, r.unique_states from ring_attempt(p_job_id) as r where not exists (select from body)
    )
    select encode(f.unique_key, 'hex'), f.unique_states::int, u.job_id, u.release_at
    from found as f
    left join unique_claims as u on u.unique_key = f.unique_key
    where f.unique_key is not null
    limit 1;
end
$$;
