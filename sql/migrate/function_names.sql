-- Our functions by name, and how many signatures each has; what an extension put here is not ours.
select p.proname, count(*)
  from pg_proc p
 where p.pronamespace = '{schema_text}'::regnamespace
   and not exists (select from pg_depend d
                    where d.classid = 'pg_proc'::regclass and d.objid = p.oid and d.deptype = 'e')
 group by p.proname
