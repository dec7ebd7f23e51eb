-- find_lease(attempt) -> 'held': it stands in leases and runs; 'ended': it has come to an end; 'unknown': this database has never seen it, or
-- has emptied the slot of its receipt. Asked on the connection of a handler before it completes its job there.
-- Guard: none. Locks: none. Errors: AW002; 25006 where nothing can be written.
create or replace function {schema}.find_lease(
    p_receipt_id bigint, p_nonce bigint, p_index int, p_job_id bigint, p_run_lease bigint
) returns text
language plpgsql stable
set search_path = {schema}, pg_catalog, pg_temp
as $$
begin
    perform require_read_committed('job.completing');
    if current_setting('transaction_read_only')::boolean then
        raise exception 'the transaction is read-only' using errcode = '25006';
    end if;
    if exists (
        select from leases as l
        where l.receipt_id = p_receipt_id and l.idx = p_index and l.nonce = p_nonce and l.job_id = p_job_id
            and l.run_lease + 1 = p_run_lease and l.runtime_id is not null) then
        return 'held';
    end if;
    if exists (select from receipts as r where r.receipt_id = p_receipt_id and r.nonce = p_nonce) then
        return 'ended';
    end if;
    return 'unknown';
end
$$;
