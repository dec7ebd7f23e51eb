-- foreign_rows_<slot>() -> whether a row stands there under an xid that this cluster has not reached: a row one can see was
-- written by a transaction that has ended, or by one's own. One probe a lane. Guard: none. Locks: none. Errors: none.
create or replace function {schema}.foreign_rows_{slot}() returns boolean
language plpgsql volatile
set jit = off
set enable_seqscan = off
set enable_bitmapscan = off
as $$
begin
    return exists (
        select from {schema}.lanes_of_slot_{slot}() as l
         cross join lateral (
                select from {schema}.jobs_ready_{slot} as r
                 where hashtextextended(r.queue, r.priority) = hashtextextended(l.queue, l.priority)
                   and (r.txid, r.job_id) > (pg_snapshot_xmax(pg_current_snapshot()), -9223372036854775808)
                   and r.txid is distinct from pg_current_xact_id_if_assigned()
                 limit 1) as r);
end
$$;
