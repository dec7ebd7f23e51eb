-- release_keys_<slot>(after, limit, retention_s) -> the last job id looked at, or null when there was nothing after `after`: the
-- unique keys of the next jobs that completed in this slot are given up, or where they have not been complete for retention_s
-- yet, marked with the instant at which they will be. A job that only passed through the slot keeps its key.
-- Guard: the slot is exhausted. Locks: the rows of unique_claims. Errors: none.
create or replace function {schema}.release_keys_{slot}(p_after bigint, p_limit int, p_retention_s float8) returns bigint
language plpgsql volatile
set search_path = {schema}, pg_catalog, pg_temp
set jit = off
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set enable_bitmapscan = off
set enable_hashjoin = off
set enable_mergejoin = off
as $$
declare
    v_last bigint;
    v_jobs bigint[];
    v_keys bytea[];
    v_until timestamptz[];
begin
    select max(n.job_id) into v_last
    from (
        select r.job_id from jobs_ready_{slot} as r
        where r.unique_key is not null and r.job_id > p_after
        order by r.job_id
        limit p_limit
    ) as n;
    if v_last is null then
        return null;
    end if;
    select
        array_agg(r.job_id), array_agg(r.unique_key),
        array_agg(r.finalized_at + make_interval(secs => least(p_retention_s, 3155760000)))
    into v_jobs, v_keys, v_until
    from ring_rows_{slot}() as r
    where r.unique_key is not null and r.job_id > p_after and r.job_id <= v_last and r.outcome = 1;
    perform drop_keys(array_agg(k.key), array_agg(k.job_id))
    from unnest(v_keys, v_jobs, v_until) as k(key, job_id, until)
    where k.until <= clock_timestamp()
    having count(*) > 0;
    update unique_claims as u
    set release_at = k.until
    from unnest(v_keys, v_jobs, v_until) as k(key, job_id, until)
    where u.unique_key = k.key and u.job_id = k.job_id and k.until > clock_timestamp();
    return v_last;
end
$$;
