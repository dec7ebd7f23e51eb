-- complete_moved(receipt, nonces, mask) -> which of these attempts stood in leases and are completed now, and which
-- are locked elsewhere. Arrow: running -> completed; the body goes to jobs_finished, as its slot may be gone.
-- Guard: the lease row with its nonce. Locks: leases by index, SKIP LOCKED. Errors: none.
create or replace function {schema}.complete_moved(
    p_receipt bigint, p_nonces bigint[], p_mask bigint, out done bigint, out busy bigint)
language plpgsql volatile
as $$
begin
    with held as materialized (
        select l.receipt_id, l.idx from {schema}.leases as l
         where l.receipt_id = p_receipt and l.nonce = any (p_nonces) and p_mask & (1::bigint << l.idx) <> 0
           and l.state = 'running'
         order by l.idx for update skip locked
    ), gone as (
        delete from {schema}.leases as l using held as h
         where l.receipt_id = p_receipt and l.idx = h.idx returning l.*
    ), kept as (
        insert into {schema}.jobs_finished (job_id, queue, priority, kind, args, attempt, max_attempts, run_lease,
                run_at, created_at, metadata, tags, ordering_key, errors, snoozes, deadline_s, unique_key,
                unique_states, progress, state)
        select g.job_id, g.queue, g.priority, g.kind, g.args, g.attempt + 1, g.max_attempts, g.run_lease + 1,
                g.run_at, g.created_at, g.metadata, g.tags, g.ordering_key, g.errors, g.snoozes, g.deadline_s,
                g.unique_key, g.unique_states, g.progress, 'completed'
          from gone as g
    )
    select coalesce(bit_or(1::bigint << h.idx), 0) into done from held as h;
    select coalesce(bit_or(1::bigint << l.idx), 0) & ~done into busy from {schema}.leases as l
     where l.receipt_id = p_receipt and l.nonce = any (p_nonces) and p_mask & (1::bigint << l.idx) <> 0
       and l.state = 'running';
end
$$;
