-- stored_depth(queue, cap, history) -> deferred, ended and dead jobs of a queue by state (dead ones are not among failed), each
-- counted up to the cap; without `history` what has ended is not counted and what is dead counted up to
-- 10,000, as metrics are asked for every few seconds.
-- Guard: none. Locks: none. Errors: none.
create or replace function {schema}.stored_depth(p_queue text, p_cap int, p_history boolean default true)
returns table(scheduled bigint, retryable bigint, failed bigint, cancelled bigint, completed bigint, dead bigint)
language sql stable
set search_path = {schema}, pg_catalog, pg_temp
set jit = off
set enable_seqscan = off
as $$
    select
        (select count(*) from (
            select from jobs_deferred as d where d.queue = p_queue and d.state = 'scheduled' limit p_cap) as n),
        (select count(*) from (
            select from jobs_deferred as d where d.queue = p_queue and d.state = 'retryable' limit p_cap) as n),
        (select count(*) from (
            select from jobs_finished as f where f.queue = p_queue and f.state = 'failed'
            limit case when p_history then p_cap else 0 end) as n),
        (select count(*) from (
            select from jobs_finished as f where f.queue = p_queue and f.state = 'cancelled'
            limit case when p_history then p_cap else 0 end) as n),
        (select count(*) from (
            select from jobs_finished as f where f.queue = p_queue and f.state = 'completed'
            limit case when p_history then p_cap else 0 end) as n),
        (select count(*) from (
            select from jobs_dead as x where x.queue = p_queue
            limit case when p_history then p_cap else least(p_cap, 10000) end) as n)
$$;
