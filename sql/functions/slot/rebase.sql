-- rebase_<slot>(xid) -> how many jobs of the slot were unclaimed; they stand there under that xid now.
-- Told by receipts and tombstones alone: the slot's transaction ids may be another cluster's. Claimed rows get numbers
-- below 600, which belong to no transaction of any cluster: receipts keep finding their bodies, and one snapshot at 600 has
-- them all behind it. Rows whose body lives on elsewhere (ended otherwise than completed, or cancelled) go: without
-- them a job has one row in a slot, so that a receipt's number may be shared by others.
-- The caller holds all tables of the ring. Errors: none.
create or replace function {schema}.rebase_{slot}(p_txid xid8) returns bigint
language plpgsql volatile
set jit = off
set enable_nestloop = off
as $$
declare
    v_unclaimed bigint;
begin
    delete from {schema}.jobs_ready_{slot} as r
     using {schema}.tombstones_{slot} as t
     where t.job_id = r.job_id and t.txid = r.txid;
    delete from {schema}.tombstones_{slot};
    delete from {schema}.jobs_ready_{slot} as r
     using {schema}.claimed_{slot}() as c
     where c.job_id = r.job_id and c.run_lease = r.run_lease and c.priority = r.priority and c.outcome <> 1;
    update {schema}.jobs_ready_{slot} as r
       set txid = (2 + c.receipt_id % 500)::text::xid8
      from {schema}.claimed_{slot}() as c
     where c.job_id = r.job_id and c.run_lease = r.run_lease and c.priority = r.priority;
    update {schema}.receipts_{slot} as c
       set from_txid = (2 + c.receipt_id % 500)::text::xid8, to_txid = (2 + c.receipt_id % 500)::text::xid8,
           from_id = (select min(i) from unnest(c.job_ids) as i), to_id = (select max(i) from unnest(c.job_ids) as i);
    update {schema}.jobs_ready_{slot} as r
       set txid = p_txid, priority = abs(r.priority)
     where r.txid >= '600';
    get diagnostics v_unclaimed = row_count;
    with window_row as (
        insert into {schema}.cursor_windows_{slot} (slot, prev, cur) values ({slot}, '600:600:', '600:600:')
        returning window_id
    )
    insert into {schema}.cursors_{slot} (slot, queue, priority, window_id, txid, job_id)
    select {slot}, q.queue, p, w.window_id, '0', 0
      from window_row as w
     cross join (select distinct r.queue from {schema}.jobs_ready_{slot} as r) as q
     cross join generate_series(1, 4) as p;
    return v_unclaimed;
end
$$;
