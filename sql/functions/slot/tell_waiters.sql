-- tell_waiters_<slot>() -> nothing: a note to dispatchers, if one waits for a queue into which this transaction has put a job of
-- the slot. Called where somebody waits at all. Guard: none. Locks: none. Errors: none.
create or replace function {schema}.tell_waiters_{slot}() returns void
language plpgsql volatile
set enable_bitmapscan = off
as $$
begin
    if exists (
        select from {schema}.queue_waiters as w cross join generate_series(1, 4) as p (priority)
        cross join lateral (  -- a probe of the index each: as a join, this once read the whole slot
            select from {schema}.jobs_ready_{slot} as r
            where hashtextextended(r.queue, r.priority) = hashtextextended(w.queue, p.priority)
                and r.queue = w.queue and r.priority = p.priority and r.txid = pg_current_xact_id() limit 1) as mine
        where w.until > clock_timestamp())
    then
        perform pg_notify('awa_pool', '');
    end if;
end
$$;
