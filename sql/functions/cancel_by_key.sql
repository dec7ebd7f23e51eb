-- cancel_by_key(key) -> the id of the job that held this unique key and is cancelled now; null when nobody holds it, or its
-- holder has ended. Arrow, guard, locks, errors: as cancel.
create or replace function {schema}.cancel_by_key(p_key bytea) returns bigint
language plpgsql volatile
set search_path = {schema}, pg_catalog, pg_temp
set jit = off
as $$
declare
    v_holder bigint;
begin
    perform require_read_committed('cancel_by_key');
    select u.job_id into v_holder from unique_claims as u where u.unique_key = p_key;
    if not found then
        return null;
    end if;
    perform cancel(v_holder);
    return v_holder;
exception
    when sqlstate 'AW004' or sqlstate 'AW005' then
        return null;  -- it has ended, and only its key stands yet
end
$$;
