-- empty_returned() -> whether jobs_returned was cut back to nothing: it is nearly always empty, but each claim asks it, and would walk
-- over all that was claimed from it where a snapshot keeps those rows from the vacuum. Only once it has pages enough to matter.
-- Locks: jobs_returned, ACCESS EXCLUSIVE, not waited for. Errors: none.
create or replace function {schema}.empty_returned() returns boolean
language plpgsql volatile
set search_path = {schema}, pg_catalog, pg_temp
as $$
begin
    if pg_relation_size('jobs_returned'::regclass) < 32 * 8192 or exists (select from jobs_returned) then
        return false;
    end if;
    begin
        lock table jobs_returned in access exclusive mode nowait;
    exception when lock_not_available then
        return false;
    end;
    if exists (select from jobs_returned) then  -- a statement of its own: it sees what came before the lock
        return false;
    end if;
    truncate jobs_returned;
    return true;
end
$$;
