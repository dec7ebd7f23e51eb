-- list_waits(limit) -> (job_id, kind, number, since, until) of jobs that wait for a callback, those first whose callback times out first.
-- Reads no more than it gives, and what has a callback and runs, by the index on the time-out, however many wait.
-- Guard: none. Locks: none. Errors: none.
create or replace function {schema}.list_waits(p_limit int)
returns table(job_id bigint, kind text, number int, since timestamptz, until timestamptz)
language sql stable
set search_path = {schema}, pg_catalog, pg_temp
set jit = off
set enable_seqscan = off
as $$
    select l.job_id, l.kind, l.callback_no, l.waiting_since, l.callback_until
    from leases as l
    where l.callback_id is not null and l.state = 'waiting_external'
    order by l.callback_until
    limit p_limit
$$;
