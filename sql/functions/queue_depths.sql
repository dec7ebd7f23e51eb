-- queue_depths() -> per queue what is to be done and how old the oldest of it is, without the history: for metrics.
-- available is counted up to 5,000 a slot and estimated beyond, scheduled and retryable are counted up to
-- 100,000, dead up to 10,000.
-- Guard: none. Locks: none. Errors: none.
create or replace function {schema}.queue_depths()
returns table(
    queue text, available bigint, running bigint, waiting bigint, scheduled bigint, retryable bigint, dead bigint, oldest_available_s float8,
    paused boolean, counts_are_capped boolean)
language sql stable
set search_path = {schema}, pg_catalog, pg_temp
set jit = off
as $$
    select
        k.queue, r.available, coalesce(o.running, 0), coalesce(o.waiting, 0), s.scheduled, s.retryable, s.dead,
        extract(epoch from clock_timestamp() - r.oldest)::float8,
        coalesce(q.paused_at is not null, false),
        r.estimated or s.scheduled >= 100000 or s.retryable >= 100000 or s.dead >= 10000
    from known_queues() as k(queue)
    cross join lateral ready_depth(k.queue, 5000) as r
    cross join lateral (
        select d.scheduled, d.retryable, d.dead from stored_depth(k.queue, 100000, false) as d
    ) as s
    left join open_counts() as o on o.queue = k.queue
    left join queues as q on q.queue = k.queue
$$;
