-- refuse_lost_window() -> nothing. Claims pass such a lane by, so that other queues go on: here a person is told of it, and no slot is
-- called done whose jobs nobody can count. Guard: none. Locks: none. Errors: XX001.
create or replace function {schema}.refuse_lost_window() returns void
language plpgsql stable
set search_path = {schema}, pg_catalog, pg_temp
as $$
declare
    v_why text := lost_window();
begin
    if v_why is not null then
        raise exception 'schema %: %, rows of its tables were deleted: its jobs there wait until the pools are stopped and `awa-pool rebase` is run',
            {schema_name}, v_why using errcode = 'XX001';
    end if;
end
$$;
