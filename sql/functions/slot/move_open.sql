-- move_open_<slot>(limit, min_age_s) -> attempts moved: bodies to leases, their bits set with outcome 8. From then on
-- the lease row is the guard. Only attempts older than min_age_s.
-- Locks: receipts by id, SKIP LOCKED. Errors: XX001 when a receipt's body cannot be found.
create or replace function {schema}.move_open_{slot}(p_limit int, p_min_age_s float8) returns int
language plpgsql volatile
set jit = off
set enable_seqscan = off
as $$
declare
    v_receipts bigint[];
    v_nonces bigint[];
    v_masks bigint[];
    v_open int;
    v_moved int;
begin
    select array_agg(o.receipt_id), array_agg(o.nonce), array_agg(o.mask)
      into v_receipts, v_nonces, v_masks
      from (select r.receipt_id, r.nonce, ~r.closed & (9223372036854775807 >> (63 - r.n)) as mask
              from {schema}.receipts_{slot} as r
             where r.closed <> (9223372036854775807 >> (63 - r.n))
               and r.claimed_at < clock_timestamp() - make_interval(secs => p_min_age_s)
             order by r.receipt_id limit greatest(1, p_limit / 63)
               for update skip locked) as o;
    if v_receipts is null then
        return 0;
    end if;
    insert into {schema}.leases (job_id, queue, priority, kind, args, attempt, max_attempts, run_lease, run_at,
            created_at, metadata, tags, ordering_key, errors, snoozes, deadline_s, unique_key, unique_states, progress,
            receipt_id, nonce, idx, slot, runtime_id, request_id, claimed_at)
    select b.job_id, b.queue, b.priority, b.kind, b.args, b.attempt, b.max_attempts, b.run_lease, b.run_at,
           b.created_at, b.metadata, b.tags, b.ordering_key, b.errors, b.snoozes, b.deadline_s, b.unique_key,
           b.unique_states, b.progress, b.receipt_id, r.nonce, b.idx, {slot}, r.runtime_id, r.request_id, r.claimed_at
      from {schema}.bodies_{slot}(v_receipts, v_masks) as b
      join {schema}.receipts_{slot} as r on r.receipt_id = b.receipt_id;
    get diagnostics v_moved = row_count;
    v_open := (select sum(length(replace(m.mask::bit(64)::text, '0', ''))) from unnest(v_masks) as m (mask));
    if v_moved <> v_open then
        raise exception 'slot {slot}: % open attempts, but % bodies', v_open, v_moved using errcode = 'XX001';
    end if;
    perform {schema}.close_bits_{slot}(v_receipts, v_nonces, v_masks, 8);
    return v_moved;
end
$$;
