-- enqueue_many_unique(json, on_conflict) -> job ids in order, and how many of them are holders of a key that was wanted. The
-- part of enqueue_many for documents that may name unique keys.
-- Locks: unique keys in key order, waiting as take_keys; then the new rows. Errors: AW001; AW007 naming the item: detail is
-- the holder's id, or nothing where it is an earlier item of this document; 40001 as take_keys.
create or replace function {schema}.enqueue_many_unique(
    p_jobs json, p_on_conflict text, out job_ids bigint[], out skipped int)
language plpgsql volatile
set search_path = {schema}, pg_catalog, pg_temp
set jit = off
set plan_cache_mode = force_generic_plan
as $$
declare
    v_keys bytea[];  -- of each item, in order; null where it has none, or holds none in its first state
    v_wanted int[];
    v_new boolean[];
    v_lost record;
begin
    skipped := 0;
    if unique_flaw(null, null, p_on_conflict) is not null then
        perform refuse_request('', unique_flaw(null, null, p_on_conflict));
    end if;
    select
        array_agg(
            case when i.unique_key is null and i.unique_states is null then null
                when coalesce(i.unique_key ~ '^[0-9a-fA-F]{32}$', false)
                    and unique_flaw(decode(i.unique_key, 'hex'), i.unique_states, p_on_conflict) is null
                then case when states_hold(coalesce(i.unique_states, 31), case
                        when i.run_at is not null and parse_run_at(i.run_at) > statement_timestamp() then 'scheduled'
                        else 'available' end)
                    then decode(i.unique_key, 'hex') end
                else refuse_item(p_jobs)::bytea
            end order by i.place),
        array_agg(nextval('job_id_seq') order by i.place), array_agg(true)
    into v_keys, job_ids, v_new
    from rows from (json_to_recordset(p_jobs) as (unique_key text, unique_states int, run_at text)) with ordinality
        as i(unique_key, unique_states, run_at, place);
    v_wanted := array(select k.place::int from unnest(v_keys) with ordinality as k(key, place) where k.key is not null);
    if v_wanted <> '{}' then
        for v_lost in
            select v_wanted[t.place] as place, t.holder
            from take_keys(
                array(select k.key from unnest(v_keys) with ordinality as k(key, place)
                      where k.key is not null order by k.place),
                array(select j.id from unnest(v_keys, job_ids) with ordinality as j(key, id, place)
                      where j.key is not null order by j.place)) as t
            order by 1
        loop
            if p_on_conflict = 'raise' then
                if v_lost.holder = any (job_ids) then
                    raise exception 'jobs[%]: has the unique key of jobs[%]',
                        v_lost.place - 1, array_position(job_ids, v_lost.holder) - 1
                        using errcode = 'AW007', detail = '';
                end if;
                raise exception 'jobs[%]: job % holds the unique key', v_lost.place - 1, v_lost.holder
                    using errcode = 'AW007', detail = v_lost.holder;
            end if;
            job_ids[v_lost.place] := v_lost.holder;
            v_new[v_lost.place] := false;
            skipped := skipped + 1;
        end loop;
    end if;
    perform enqueue_many_timed(p_jobs, job_ids, v_new);
    job_ids := coalesce(job_ids, '{}');
exception
    when data_exception or check_violation or not_null_violation then
        perform refuse_item(p_jobs);
        raise;
end
$$;
