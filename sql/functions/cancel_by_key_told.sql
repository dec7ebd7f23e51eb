-- cancel_by_key_told(key, kinds, owed) -> (job_id, told): cancel_told for the job that holds this unique key; job_id is null when
-- nobody holds it, or its holder has ended. Arrow, guard, locks, errors: as cancel.
create or replace function {schema}.cancel_by_key_told(
    p_key bytea, p_kinds text[], p_owed text[], out job_id bigint, out told boolean)
language plpgsql volatile
set search_path = {schema}, pg_catalog, pg_temp
set jit = off
as $$
declare
    v_holder bigint := (select u.job_id from unique_claims as u where u.unique_key = p_key);
begin
    perform require_read_committed('cancel_by_key');
    told := false;
    if v_holder is not null then
        select c.job_id, c.told into job_id, told from cancel_told(v_holder, p_kinds, p_owed) as c;
    end if;
exception
    when sqlstate 'AW004' or sqlstate 'AW005' then
        job_id := null;  -- it has ended, and only its key stands yet
        told := false;
end
$$;
