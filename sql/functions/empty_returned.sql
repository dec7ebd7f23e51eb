-- empty_returned(rest_s) -> whether jobs_returned was cut back to nothing. It is nearly always empty, but each claim asks it, and would
-- walk over all that was claimed from it where a snapshot keeps those rows from the vacuum. Only once it has pages enough to
-- matter, and when for rest_s nothing has been taken out: whoever took its snapshot before the last claim there and reads the
-- table after the cut finds those jobs nowhere, and a dump lies a few seconds between the two (counters come a minute late at most).
-- Locks: jobs_returned, ACCESS EXCLUSIVE, not waited for. Errors: none.
create or replace function {schema}.empty_returned(p_rest_s float8 default 300) returns boolean
language plpgsql volatile
set search_path = {schema}, pg_catalog, pg_temp
as $$
declare
    v_deleted bigint := pg_stat_get_tuples_deleted('jobs_returned'::regclass);
    v_rested boolean;
begin
    if pg_relation_size('jobs_returned'::regclass) < 32 * 8192 then
        return false;
    end if;
    insert into returned_rest as r (deleted, since) values (v_deleted, clock_timestamp())
        on conflict (one) do update set deleted = excluded.deleted, since = excluded.since
        where r.deleted <> excluded.deleted;
    select r.since <= clock_timestamp() - make_interval(secs => p_rest_s) into v_rested from returned_rest as r;
    if not v_rested or exists (select from jobs_returned) then
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
