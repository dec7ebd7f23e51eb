-- rebase_counts_<slot>() -> (unclaimed, open_attempts, top_job, top_receipt) of the slot, told by receipts and tombstones alone; the
-- tops are the highest ids in it. Reads the whole slot. Guard: none. Locks: none. Errors: none.
create or replace function {schema}.rebase_counts_{slot}()
returns table(unclaimed bigint, open_attempts bigint, top_job bigint, top_receipt bigint)
language plpgsql stable
set jit = off
set enable_nestloop = off
as $$
begin
    select count(*) filter (where c.job_id is null and t.job_id is null), max(r.job_id) into unclaimed, top_job
      from {schema}.jobs_ready_{slot} as r
      left join {schema}.claimed_{slot}() as c
        on c.job_id = r.job_id and c.run_lease = r.run_lease and c.priority = r.priority
      left join {schema}.tombstones_{slot} as t on t.job_id = r.job_id and t.txid = r.txid;
    select count(*) filter (where c.outcome is null), max(c.receipt_id) into open_attempts, top_receipt
      from {schema}.claimed_{slot}() as c;
    return next;
end
$$;
