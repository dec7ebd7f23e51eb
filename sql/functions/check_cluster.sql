-- check_cluster() -> nothing. Errors: AW003 when this schema was made in another cluster: transaction ids stored
-- in it mean nothing here.
create or replace function {schema}.check_cluster() returns void
language plpgsql stable
set search_path = {schema}, pg_catalog, pg_temp
as $$
declare
    made_in bigint := (select m.system_identifier from meta as m);
    here bigint := (select c.system_identifier from pg_control_system() as c);
begin
    if made_in is distinct from here then
        raise exception 'schema % was made in cluster %, this is cluster %', {schema_name}, made_in, here
            using errcode = 'AW003',
                  hint = 'After pg_upgrade run `awa-pool migrate --accept-system-id`; a restored or copied database must not be worked on.';
    end if;
end
$$;
