-- slot_user(slot) -> (told, since) of the oldest session that has a lock on one of the slot's tables, which prune does not wait
-- for; no row when there is none. Guard: none. Locks: none. Errors: none.
create or replace function {schema}.slot_user(p_slot int) returns table(told text, since timestamptz)
language sql stable
as $$
    select format('in use by pid %s (%s, %s)', l.pid, coalesce(a.usename, '?'), coalesce(a.state, 'its state is hidden from this role')),
           a.xact_start
      from pg_locks as l
      left join pg_stat_activity as a on a.pid = l.pid
     where l.locktype = 'relation' and l.granted and l.pid <> pg_backend_pid()
       and l.database = (select d.oid from pg_database as d where d.datname = current_database())
       and l.relation in (select t from {schema}.slot_tables(p_slot) as t)
     order by a.xact_start nulls last
     limit 1
$$;
