-- Drop every function, procedure and view of one name, whatever its arguments (its signature is about to change).
do $do$
declare
    doomed text;
begin
    for doomed in
        select 'routine ' || p.oid::regprocedure from pg_proc p
         where p.pronamespace = '{schema_text}'::regnamespace and p.proname = '{name}'
        union all
        select 'view ' || c.oid::regclass from pg_class c
         where c.relnamespace = '{schema_text}'::regnamespace and c.relname = '{name}' and c.relkind = 'v'
    loop
        execute 'drop ' || doomed || ' cascade';
    end loop;
end
$do$
