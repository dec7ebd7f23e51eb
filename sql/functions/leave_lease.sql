-- leave_lease(lease, code, attempt, metadata, error, reason, cause) -> nothing: a moved attempt ends with that outcome code (see
-- settle_bodies, for causes too); its job counts `attempt` attempts from now on. Its key is seen to (lease_keys) where the
-- job goes on.
-- Guard: the caller's, which holds the lease row. Locks: as settle_bodies. Errors: none of its own.
create or replace function {schema}.leave_lease(
    p_lease {schema}.leases, p_code int, p_attempt int, p_metadata json, p_error jsonb, p_reason text, p_cause text
) returns void
language plpgsql volatile
set search_path = {schema}, pg_catalog, pg_temp
set jit = off
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
as $$
begin
    delete from leases as l where l.receipt_id = p_lease.receipt_id and l.idx = p_lease.idx;
    perform settle_bodies(
        array[row(
            p_lease.job_id, p_lease.queue, p_lease.priority, p_lease.kind, p_lease.args, p_attempt,
            p_lease.max_attempts, p_lease.run_lease + 1, p_lease.run_at, p_lease.created_at, p_metadata, p_lease.tags,
            p_lease.ordering_key, add_error(p_lease.errors, p_error, p_lease.attempt + 1), p_lease.snoozes,
            p_lease.deadline_s, p_lease.unique_key, p_lease.unique_states, p_lease.progress)::body],
        array[p_code], array[null::float8], array[p_reason], array[p_cause]);
end
$$;
