-- lead(name, holder, ttl) -> whether the holder leads until now + ttl. A lease row and the database's clock, no lock of a
-- session: it works through a transaction pooler and ends by itself when its holder does.
-- Guard: the lease is free, expired, or the holder's own. Locks: the name's row. Errors: AW001 for a ttl out of range, AW003.
create or replace function {schema}.lead(p_name text, p_holder uuid, p_ttl_s float8) returns boolean
language plpgsql volatile
set search_path = {schema}, pg_catalog, pg_temp
as $$
begin
    if p_ttl_s is null or not (p_ttl_s > 0 and p_ttl_s <= 3600) then
        perform refuse_request('', 'ttl_s: must be more than 0 and at most 3600 seconds');
    end if;
    perform check_cluster();
    insert into leader as l (name, holder, until)
    values (p_name, p_holder, clock_timestamp() + make_interval(secs => p_ttl_s))
    on conflict (name) do update
    set holder = excluded.holder, until = clock_timestamp() + make_interval(secs => p_ttl_s)
    where l.holder = excluded.holder or l.until < clock_timestamp();
    return found;
end
$$;
