-- release_due_keys(limit) -> how many unique keys went whose time is over (release_at): those of jobs whose history had to make
-- room before its time. Locks: these rows, skip locked. Errors: none.
create or replace function {schema}.release_due_keys(p_limit int) returns int
language plpgsql volatile
set search_path = {schema}, pg_catalog, pg_temp
set jit = off
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
as $$
declare
    v_now timestamptz := clock_timestamp();  -- a variable, so that the index bounds what is read
    v_count int;
begin
    delete from unique_claims as u
    where u.unique_key in (
        select d.unique_key from unique_claims as d
        where d.release_at <= v_now
        order by d.release_at
        limit p_limit
        for update skip locked);
    get diagnostics v_count = row_count;
    return v_count;
end
$$;
