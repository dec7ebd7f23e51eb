-- with_queue_deadline(bodies, seconds) -> the claimed bodies, each with the queue's deadline in its extra. The worker decides
-- which is nearest: the job's own, its task's, then this one.
-- Guard: none. Locks: none. Errors: none. A body ends with its extra, null or an object that holds something.
create or replace function {schema}.with_queue_deadline(p_bodies text[], p_deadline_s float8) returns text[]
language sql immutable
as $$
    select array_agg(
        case
            when right(b.body, 6) = ',null]' then left(b.body, -5) || '{"queue_deadline_s":' || p_deadline_s || '}]'
            else left(b.body, -2) || ',"queue_deadline_s":' || p_deadline_s || '}]'
        end
        order by b.number)
    from unnest(p_bodies) with ordinality as b(body, number)
$$;
