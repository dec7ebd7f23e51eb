-- work_left(queues) -> (available, running, later): what a draining pool has before it. Counts are capped at 1,000 a slot
-- and queue: enough to tell none from some and to say a number.
-- Guard: none. Locks: none. Errors: none.
create or replace function {schema}.work_left(p_queues text[])
returns table(available bigint, running bigint, later bigint)
language plpgsql stable
set search_path = {schema}, pg_catalog, pg_temp
set jit = off
as $$
begin
    select coalesce(sum(n.available), 0) into available
    from (select distinct q from unnest(p_queues) as q) as u(name)
    cross join lateral count_ready(u.name, 1000) as n(available);
    select coalesce(sum(o.running), 0) into running from open_counts() as o where o.queue = any(p_queues);
    select coalesce(sum(d.scheduled + d.retryable), 0) into later
    from (select distinct q from unnest(p_queues) as q) as u(name)
    cross join lateral stored_depth(u.name, 1000) as d;
    return next;
end
$$;
