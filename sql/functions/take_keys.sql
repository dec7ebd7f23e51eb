-- take_keys(keys, job_ids) -> (place, holder) of those that another job holds. Every other key is the job's now.
-- Locks: new rows of unique_claims in key order; waits for transactions that are about to hold, or to give up, such a key.
-- Errors: 40001 under REPEATABLE READ when a newer holder is met; 55P03 where the caller has set a lock_timeout.
--
-- Of several jobs that want one key in one call the first gets it. When the holder went between the two looks, the key is
-- asked for again: one of all those who ask gets it, and everybody learns who.
create or replace function {schema}.take_keys(p_keys bytea[], p_job_ids bigint[])
returns table(place int, holder bigint)
language plpgsql volatile
set search_path = {schema}, pg_catalog, pg_temp
set jit = off
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
as $$
#variable_conflict use_column
declare
    v_left int[] := array(select i from generate_subscripts(p_keys, 1) as i);
    v_got int;
begin
    for v_round in 1..1000 loop
        insert into unique_claims (unique_key, job_id)
        select p_keys[w.i], p_job_ids[w.i]
        from unnest(v_left) as w(i)
        order by p_keys[w.i], w.i
        on conflict (unique_key) do nothing;
        get diagnostics v_got = row_count;
        if v_got = cardinality(v_left) then
            return;
        end if;
        -- A key whose time is over counts as given up, whether the sweep has come by or not.
        delete from unique_claims as u
        using unnest(v_left) as w(i)
        where u.unique_key = p_keys[w.i] and u.job_id <> p_job_ids[w.i] and u.release_at <= clock_timestamp();
        return query
        select w.i, u.job_id
        from unnest(v_left) as w(i)
        join unique_claims as u on u.unique_key = p_keys[w.i]
        where u.job_id <> p_job_ids[w.i];
        v_left := array(
            select w.i
            from unnest(v_left) as w(i)
            where not exists (select from unique_claims as u where u.unique_key = p_keys[w.i]));
        if v_left = '{}' then
            return;
        end if;
    end loop;
    raise exception 'a unique key keeps changing hands' using errcode = 'lock_not_available';
end
$$;
