-- unload_lane_<slot>(queue, priority, limit) -> jobs moved from the lane to jobs_returned: claimed for nobody and given
-- back at once, no attempt and no lease used. The caller holds the lane's lock.
-- Locks: its own receipts. Errors: AW003 for a cursor from the future; XX001 when a body cannot be found.
create or replace function {schema}.unload_lane_{slot}(p_queue text, p_priority int, p_limit int) returns int
language plpgsql volatile
as $$
declare
    v_receipts bigint[];
    v_nonces bigint[];
    v_masks bigint[];
    v_count int;
    v_moved int;
begin
    select array_agg(c.receipt_id), array_agg(c.nonce),
           array_agg(9223372036854775807 >> (63 - cardinality(c.job_ids))), sum(cardinality(c.job_ids))
      into v_receipts, v_nonces, v_masks, v_count
      from {schema}.claim_lane_{slot}(p_queue, p_priority, p_limit, 9223372036854775807, 63, null, null) as c;
    if v_receipts is null then
        return 0;
    end if;
    insert into {schema}.jobs_returned (job_id, queue, priority, kind, args, attempt, max_attempts, run_lease, run_at,
            created_at, metadata, tags, ordering_key, errors, snoozes, deadline_s, unique_key, unique_states, progress)
    select b.job_id, b.queue, b.priority, b.kind, b.args, b.attempt, b.max_attempts, b.run_lease, b.run_at,
           b.created_at, b.metadata, b.tags, b.ordering_key, b.errors, b.snoozes, b.deadline_s, b.unique_key,
           b.unique_states, b.progress
      from {schema}.bodies_{slot}(v_receipts, v_masks) as b;
    get diagnostics v_moved = row_count;
    if v_moved <> v_count then
        raise exception 'slot {slot}: % jobs claimed, but % bodies', v_count, v_moved using errcode = 'XX001';
    end if;
    perform {schema}.close_bits_{slot}(v_receipts, v_nonces, v_masks, 6);
    return v_moved;
end
$$;
