-- completed_counts() -> (queue, completed, estimated) of the history that the ring still holds.
-- Guard: none. Locks: none. Errors: none.
create or replace function {schema}.completed_counts()
returns table(queue text, completed bigint, estimated boolean)
language plpgsql stable
set search_path = {schema}, pg_catalog, pg_temp
set jit = off
as $$
#variable_conflict use_column
begin
    return query
    select n.queue, sum(n.completed)::bigint, bool_or(n.estimated)
    from (
        select null::text as queue, 0::bigint as completed, false as estimated where false
{each_slot}
        union all
        select * from completed_counts_{slot}()
{end_slot}
    ) as n
    group by n.queue;
end
$$;
