-- bury(body, reason) -> true: the job lies in the dead letter queue from now on, as failed, whatever its queue's setting says.
-- Guard: the caller's, which took the job from its place in the same transaction. Locks: the new row. Errors: none.
create or replace function {schema}.bury(p_body {schema}.body, p_reason text) returns boolean
language plpgsql volatile
set search_path = {schema}, pg_catalog, pg_temp
as $$
begin
    insert into jobs_dead
    select (p_body).*, 'failed', left(p_reason, 1000), clock_timestamp()
    on conflict (job_id) do nothing;
    perform settle_keys(
        array[(p_body).job_id], array[(p_body).unique_key], array[(p_body).unique_states::int], array['failed']);
    return true;
end
$$;
