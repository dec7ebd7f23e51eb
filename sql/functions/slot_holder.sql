-- slot_holder(slot) -> what stands between a sealed slot, whose writers have all ended, and its exhaustion: (held_by, told, since)
-- with held_by 'paused_queue', 'waiting_jobs' or 'running_job'; no row when nothing does.
-- Guard: none. Locks: none. Errors: none.
create or replace function {schema}.slot_holder(p_slot int) returns table(held_by text, told text, since timestamptz)
language plpgsql volatile
as $$
declare
    v_queues text[];
    v_paused record;
    r record;
begin
    execute format('select array_agg(u.queue order by u.queue) from {schema}.unclaimed_queues_%s() as u', p_slot)
       into v_queues;
    if v_queues is not null then
        select q.queue, q.paused_at into v_paused
          from {schema}.queues as q where q.queue = any (v_queues) and q.paused_at is not null
         order by q.paused_at limit 1;
        held_by := case when v_paused.queue is null then 'waiting_jobs' else 'paused_queue' end;
        since := v_paused.paused_at;
        told := format('%s %s%s', case when since is null then 'jobs wait in queue' else 'paused queue' end,
                       coalesce(v_paused.queue, v_queues[1]),
                       case when cardinality(v_queues) > 1
                            then format(' and %s more', cardinality(v_queues) - 1) else '' end);
        return next;
        return;
    end if;
    execute format('select o.job_ids, o.open_mask, o.claimed_at, t.host, t.pid'
                   '  from {schema}.open_receipts_%s($1) as o'
                   '  left join {schema}.runtimes as t on t.runtime_id = o.runtime_id'
                   ' order by o.receipt_id limit 1', p_slot)
       into r using (select s.open_from from {schema}.slots as s where s.slot = p_slot);
    if r.job_ids is not null then
        held_by := 'running_job';
        since := r.claimed_at;
        told := format('job %s runs%s',
            (select i.job_id from unnest(r.job_ids) with ordinality as i (job_id, place)
              where r.open_mask & (1::bigint << (i.place - 1)::int) <> 0 order by i.place limit 1),
            coalesce(format(' on %s (pool pid %s)', r.host, r.pid), ' for a pool that is not known any more'));
        return next;
    end if;
end
$$;
