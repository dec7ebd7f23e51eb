-- queue_stats() -> jobs per queue and state; failed are those outside the dead letter queue, waiting those that wait for a callback. counts_are_capped says that a number is an estimate or reached its cap: available is
-- counted up to 5,000 a slot and estimated beyond, completed is estimated from a sample where the history of a slot
-- is long, the others are counted up to 100,000.
-- Guard: none. Locks: none. Errors: none.
create or replace function {schema}.queue_stats()
returns table(
    queue text, available bigint, running bigint, waiting bigint, scheduled bigint, retryable bigint, failed bigint, cancelled bigint,
    completed bigint, dead bigint, oldest_available_s float8, paused boolean, counts_are_capped boolean)
language sql stable
set search_path = {schema}, pg_catalog, pg_temp
set jit = off
as $$
    select
        k.queue, r.available, coalesce(o.running, 0), coalesce(o.waiting, 0), s.scheduled, s.retryable, s.failed, s.cancelled,
        s.completed + coalesce(c.completed, 0), s.dead, extract(epoch from clock_timestamp() - r.oldest)::float8,
        coalesce(q.paused_at is not null, false),
        r.estimated or coalesce(c.estimated, false)
            or greatest(s.scheduled, s.retryable, s.failed, s.cancelled, s.completed, s.dead) >= 100000
    from known_queues() as k(queue)
    cross join lateral ready_depth(k.queue, 5000) as r
    cross join lateral stored_depth(k.queue, 100000) as s
    left join open_counts() as o on o.queue = k.queue
    left join completed_counts() as c on c.queue = k.queue
    left join queues as q on q.queue = k.queue
$$;
