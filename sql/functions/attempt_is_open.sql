-- attempt_is_open(slot, receipt, nonce, index, job, run_lease) -> whether this very attempt goes on: runs, in the ring or moved out of
-- it, or waits for a callback.
-- Guard: none. Locks: none. Errors: none.
create or replace function {schema}.attempt_is_open(
    p_slot int, p_receipt bigint, p_nonce bigint, p_idx int, p_job_id bigint, p_run_lease bigint
) returns boolean
language plpgsql stable
set search_path = {schema}, pg_catalog, pg_temp
set jit = off
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
as $$
declare
    v_open boolean := false;
begin
    if p_idx not between 0 and 62 then
        return false;
    end if;
    case p_slot{each_slot}
    when {slot} then
        v_open := exists (
            select from receipts_{slot} as r
            where r.receipt_id = p_receipt and r.nonce = p_nonce and p_idx < r.n
                and r.closed & (1::bigint << p_idx) = 0 and r.job_ids[p_idx + 1] = p_job_id
                and coalesce(r.leases[p_idx + 1], 1) = p_run_lease);{end_slot}
    else
        return false;
    end case;
    return v_open or exists (
        select from leases as l
        where l.receipt_id = p_receipt and l.idx = p_idx and l.nonce = p_nonce and l.job_id = p_job_id
            and l.run_lease + 1 = p_run_lease);
end
$$;
