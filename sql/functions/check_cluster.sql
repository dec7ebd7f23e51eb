-- check_cluster() -> nothing. Errors: AW003 when the transaction ids or sequences stored here are not this cluster's own.
create or replace function {schema}.check_cluster() returns void
language plpgsql stable
set search_path = {schema}, pg_catalog, pg_temp
as $$
declare
    v_why text := rebase_needed();
begin
    if v_why is not null then
        raise exception 'schema % %: after pg_upgrade run `awa-pool migrate --accept-system-id`, after a restore or copy `awa-pool rebase`',
            {schema_name}, v_why using errcode = 'AW003';
    end if;
end
$$;
