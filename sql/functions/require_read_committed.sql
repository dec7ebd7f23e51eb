-- require_read_committed(function) -> nothing. Errors: AW002 under any other isolation.
-- An older snapshot than the locks it takes would show a state-moving function rows that others have moved since.
create or replace function {schema}.require_read_committed(p_function text) returns void
language plpgsql stable
set search_path = {schema}, pg_catalog, pg_temp
as $$
begin
    if current_setting('transaction_isolation') <> 'read committed' then
        raise exception '% runs under READ COMMITTED only, not under %',
            p_function, upper(current_setting('transaction_isolation'))
            using errcode = 'AW002';
    end if;
end
$$;
