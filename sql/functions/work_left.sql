-- work_left(queues) -> (available, running, later, parked): what a draining pool has before it. Counts are capped at 1,000 a slot
-- and queue: enough to tell none from some and to say a number. What is available in a paused queue is for later; parked is
-- what waits for an answer with no handler alive; a handler that waits for a callback runs.
-- Guard: none. Locks: none. Errors: none.
create or replace function {schema}.work_left(p_queues text[])
returns table(available bigint, running bigint, later bigint, parked bigint)
language plpgsql stable
set search_path = {schema}, pg_catalog, pg_temp
set jit = off
as $$
declare
    v_paused bigint;
begin
    parked := (select count(*) from leases as l where l.queue = any(p_queues) and l.runtime_id is null);
    select
        coalesce(sum(n.available) filter (where p.queue is null), 0),
        coalesce(sum(n.available) filter (where p.queue is not null), 0)
    into available, v_paused
    from (select distinct q from unnest(p_queues) as q) as u(name)
    cross join lateral count_ready(u.name, 1000) as n(available)
    left join queues as p on p.queue = u.name and p.paused_at is not null;
    select coalesce(sum(o.running + o.waiting), 0) - parked into running from open_counts() as o where o.queue = any(p_queues);
    select v_paused + coalesce(sum(d.scheduled + d.retryable), 0) into later
    from (select distinct q from unnest(p_queues) as q) as u(name)
    cross join lateral stored_depth(u.name, 1000) as d;
    return next;
end
$$;
