-- complete_moved(receipt, nonces, mask) -> which of these attempts stood in leases and are completed now, and which
-- are locked elsewhere. Arrow: running -> completed; the body goes to jobs_finished, as its slot may be gone.
-- Those whose completion changes who holds a unique key are ended by end_attempts, which sees to that.
-- Guard: the lease row with its nonce, not parked. Locks: leases by index, SKIP LOCKED. Errors: none.
create or replace function {schema}.complete_moved(
    p_receipt bigint, p_nonces bigint[], p_mask bigint, out done bigint, out busy bigint)
language plpgsql volatile
as $$
declare
    v_done bigint := 0;
    v_busy bigint := 0;
    v_told bigint;
begin
    if exists (select from {schema}.leases as l where l.receipt_id = p_receipt and l.unique_key is not null) then
        select coalesce(bit_or(1::bigint << e.item) filter (where e.status = 'done'), 0) as done,
               coalesce(bit_or(1::bigint << e.item) filter (where e.status = 'busy'), 0) as busy,
               coalesce(bit_or(1::bigint << e.item), 0) as bits
          into v_done, v_busy, v_told
          from (select array_agg(l.idx::int) as items, array_agg(l.slot::int) as slots,
                       array_agg(l.receipt_id) as receipts, array_agg(l.nonce) as nonces,
                       array_agg(l.job_id) as jobs, array_agg(l.run_lease + 1) as leases,
                       array_agg('completed'::text) as outcomes, array_agg(null::float8) as delays,
                       array_agg(null::jsonb) as errors, array_agg(null::text) as reasons
                  from {schema}.leases as l
                 where l.receipt_id = p_receipt and l.nonce = any (p_nonces) and p_mask & (1::bigint << l.idx) <> 0
                   and l.runtime_id is not null and l.unique_key is not null and {schema}.states_hold(l.unique_states, 'running')
                       <> {schema}.states_hold(l.unique_states, 'completed')) as a
         cross join lateral {schema}.end_attempts(
                a.items, a.slots, a.receipts, a.nonces, a.items, a.jobs, a.leases, a.outcomes, a.delays, a.errors,
                a.reasons) as e
         where a.items is not null;
        p_mask := p_mask & ~v_told;
    end if;
    with held as materialized (
        select l.receipt_id, l.idx from {schema}.leases as l
         where l.receipt_id = p_receipt and l.nonce = any (p_nonces) and p_mask & (1::bigint << l.idx) <> 0
           and l.runtime_id is not null
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
                g.unique_key, g.unique_states, null::json, 'completed'
          from gone as g
    )
    select coalesce(bit_or(1::bigint << h.idx), 0) into done from held as h;
    select coalesce(bit_or(1::bigint << l.idx), 0) & ~done into busy from {schema}.leases as l
     where l.receipt_id = p_receipt and l.nonce = any (p_nonces) and p_mask & (1::bigint << l.idx) <> 0
       and l.runtime_id is not null;
    done := done | v_done;
    busy := busy | v_busy;
end
$$;
