-- complete_leased(attempt) -> 'completed', or 'stale': it has ended otherwise, or was never moved to leases (lease_attempts), and nothing is
-- done. For a handler that completes its job in its own transaction, with rows of its own: the caller rolls those back when stale.
-- Arrow: running -> completed, when the caller commits. Guard: the lease row, with nonce, job_id, run_lease and a runtime.
-- Locks: the lease row, for which it waits; then the job's unique key, as key_pass, if its mask gives it up or takes it.
-- Errors: AW002.
--
-- The lease row comes before the key, as for answers to callbacks: whoever ends attempts in batches holds keys while it looks for
-- leases, but skips rows that are locked, and so never waits for this transaction, and this one waits for a batch at most.
-- What the caller holds from here to its commit is the lease row of this one attempt and a key that the job gives up.
-- Meanwhile finishes, rescues and callbacks of a host pass the attempt by as busy; a cancel waits for 2 s; an answer from
-- outside waits until then, and finds it gone; who wants that key waits as for any producer that is slow to commit. Rows of the
-- application may be locked before and after this in any order: two transactions that wait for each other there are the
-- application's, and one of them ends with 40P01, which undoes its completion too.
create or replace function {schema}.complete_leased(
    p_receipt_id bigint, p_nonce bigint, p_index int, p_job_id bigint, p_run_lease bigint
) returns text
language plpgsql volatile
set search_path = {schema}, pg_catalog, pg_temp
set jit = off
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
as $$
declare
    v leases;
begin
    perform require_read_committed('job.completing');
    select l.* into v
    from leases as l
    where l.receipt_id = p_receipt_id and l.idx = p_index and l.nonce = p_nonce and l.job_id = p_job_id
        and l.run_lease + 1 = p_run_lease and l.runtime_id is not null
    for update;
    if not found then
        return 'stale';
    end if;
    perform leave_lease(v, 1, v.attempt + 1, v.metadata, null, null, null);
    return 'completed';
end
$$;
