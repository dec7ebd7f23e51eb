-- oldest_transaction() -> (told, since) of the open transaction with the smallest xid in the cluster: the one that a sealed slot
-- waits for. What a role may not see of other users' sessions is left out. Guard: none. Locks: none. Errors: none.
create or replace function {schema}.oldest_transaction() returns table(told text, since timestamptz)
language sql stable
as $$
    select o.told, o.since
    from (
        (select format('open transaction of pid %s (%s, %s%s)', a.pid, a.usename,
                       coalesce(a.state, 'its state is hidden from this role'),
                       case when a.application_name <> '' then ', ' || a.application_name else '' end) as told,
                a.xact_start as since, age(a.backend_xid) as age
           from pg_stat_activity as a
          where a.backend_xid is not null and a.pid <> pg_backend_pid()
          order by age(a.backend_xid) desc limit 1)
        union all
        (select format('prepared transaction %L in database %s', p.gid, p.database), p.prepared, age(p.transaction)
           from pg_prepared_xacts as p
          order by age(p.transaction) desc limit 1)
    ) as o
    order by o.age desc
    limit 1
$$;
