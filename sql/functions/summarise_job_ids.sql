-- summarise_job_ids(slot) -> nothing: bring the slot's block-range index of job ids up to date, unless the table is
-- locked. Locks: SHARE UPDATE EXCLUSIVE on the partition, not waited for. Errors: none.
create or replace function {schema}.summarise_job_ids(p_slot int) returns void
language plpgsql volatile
as $$
begin
    execute format('lock table {schema}.jobs_ready_%s in share update exclusive mode nowait', p_slot);
    perform brin_summarize_new_values(x.indexrelid)
       from pg_index as x
       join pg_class as c on c.oid = x.indexrelid
       join pg_am as a on a.oid = c.relam
      where x.indrelid = format('{schema}.jobs_ready_%s', p_slot)::regclass and a.amname = 'brin';
exception when lock_not_available then
    null;  -- next time
end
$$;
