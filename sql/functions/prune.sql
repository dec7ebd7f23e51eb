-- prune(retention_s, history_bytes) -> 'emptied 3, 4; …' with what kept other candidates, 'nothing', or 'busy'.
-- Arrow: exhausted -> free, for slots older than the retention, and from the oldest on while the history is larger than
-- history_bytes. Old rows of jobs_finished go too, a few thousand a call. Unique keys of completed jobs go with the retention,
-- whatever the size: a slot emptied before that leaves them with their time (release_at).
-- Locks: the ring (try); see prune_slot. Errors: AW002, AW003, XX001.
create or replace function {schema}.prune(p_retention_s float8, p_history_bytes bigint) returns text
language plpgsql volatile
set search_path = {schema}, pg_catalog, pg_temp
set jit = off
set enable_seqscan = off
set enable_bitmapscan = off
set enable_hashjoin = off
set enable_mergejoin = off
as $$
declare
    s record;
    v_why text;
    v_bytes bigint;
    v_ready int[] := '{}';
    v_slot int;
    v_done int[] := '{}';
    v_kept text[] := '{}';
    v_old timestamptz := clock_timestamp() - make_interval(secs => p_retention_s);
    v_rows int;
    v_keys bytea[];
    v_ids bigint[];
    v_due int;
begin
    perform require_read_committed('prune');
    perform refuse_foreign_xids();
    perform refuse_lost_window();
    if not try_ring_lock() then
        return 'busy';
    end if;
    v_bytes := (select coalesce(sum(slot_bytes(t.slot)), 0) from slots as t where t.state = 'exhausted');
    for s in select t.slot, t.exhausted_at from slots as t where t.state = 'exhausted' order by t.generation loop
        if s.exhausted_at <= v_old or v_bytes > p_history_bytes then
            v_bytes := v_bytes - slot_bytes(s.slot);
            v_why := release_slot_keys(s.slot, p_retention_s);
            if v_why is null then
                v_ready := v_ready || s.slot::int;
            else
                v_kept := v_kept || v_why;
            end if;
        end if;
    end loop;
    with gone as (
        delete from jobs_finished as f
         where f.job_id in (select g.job_id from jobs_finished as g where g.finalized_at < v_old
                             order by g.finalized_at limit 5000 for update skip locked)
        returning f.job_id, f.unique_key
    )
    select count(*), array_agg(g.unique_key) filter (where g.unique_key is not null),
           array_agg(g.job_id) filter (where g.unique_key is not null)
      into v_rows, v_keys, v_ids from gone as g;
    if v_keys is not null then
        perform drop_keys(v_keys, v_ids);
    end if;
    v_due := release_due_keys(5000);
    -- Last, as each stays locked until this transaction ends: heartbeats look into all slots.
    foreach v_slot in array v_ready loop
        exit when cardinality(v_done) >= 4;
        v_why := prune_slot(v_slot);
        if v_why is null then
            v_done := v_done || v_slot;
        else
            v_kept := v_kept || v_why;
        end if;
    end loop;
    return coalesce(nullif(concat_ws('; ',
        case when v_done <> '{}' then 'emptied ' || array_to_string(v_done, ', ') end,
        case when v_rows > 0 then format('dropped %s finished jobs', v_rows) end,
        case when v_due > 0 then format('released %s unique keys', v_due) end,
        nullif(array_to_string(v_kept, ', '), '')), ''), 'nothing');
end
$$;
