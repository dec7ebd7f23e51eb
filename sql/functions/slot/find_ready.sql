-- find_ready_<slot>(job_id) -> the lane and xid of each unclaimed row of that job in this slot that no tombstone covers.
-- Found by block range. Whether it is unclaimed is only sure under the lane's lock. Locks: none. Errors: none.
create or replace function {schema}.find_ready_{slot}(p_job_id bigint)
returns table (queue text, priority int, txid xid8)
language plpgsql volatile
set jit = off
set enable_seqscan = off
as $$
#variable_conflict use_column
begin
    return query
    select r.queue, r.priority::int, r.txid
      from {schema}.jobs_ready_{slot} as r
      left join lateral {schema}.newest_cursor_{slot}(r.queue, r.priority) as k on true
     where r.job_id = p_job_id and r.priority > 0
       and (k.prev is null or not (
            pg_visible_in_snapshot(r.txid, k.prev)
            or (pg_visible_in_snapshot(r.txid, k.cur) and (r.txid, r.job_id) <= (k.txid, k.job_id))))
       and not exists (select from {schema}.tombstones_{slot} as t where t.job_id = r.job_id and t.txid = r.txid);
end
$$;
