-- lease_keys(lease, to) -> (blocked, holder): sees to the unique key of a moved attempt's job that goes into the state `to`, one in which
-- it waits or runs. blocked: it cannot, as the job `holder` has its key; null: another session is about to decide. An attempt that
-- waits with its handler holds its key as one that runs does.
-- Guard: the caller's, which holds the lease row. Locks: keys, as key_pass. Errors: 40P01.
create or replace function {schema}.lease_keys(
    p_lease {schema}.leases, p_to text, out blocked boolean, out holder bigint)
language plpgsql volatile
set search_path = {schema}, pg_catalog, pg_temp
as $$
begin
    blocked := false;
    if p_lease.unique_key is not null then
        select m.holder into holder
        from move_keys(
            array[p_lease.job_id], array[p_lease.unique_key], array[p_lease.unique_states::int],
            array[case when p_lease.runtime_id is null then 'waiting_external' else 'running' end], p_to) as m;
        blocked := found;
    end if;
end
$$;
