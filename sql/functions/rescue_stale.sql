-- rescue_stale(stale, limit, connected) -> a row per runtime that was found gone or whose attempts were ended in this call: what a
-- runtime without a heartbeat for its stale time, or one that said good-bye, still held is ended as lost. At most `limit` attempts
-- a call: call again while the sum reaches it. Of the `attempts` ended `failed` were the last of their jobs, and `cancelled` gave
-- way to another job with their unique key; `jobs`: up to five of them, those that failed first.
-- The stale time is the runtime's own (`stale_s` of its info), `stale` where it names none. `connected`: for so many seconds the caller
-- has had answers without a break, null: for ever; who has been away for longer may only have been cut off as the caller was.
-- Arrow: running -> retryable, or failed on the last attempt. Nobody knows how far a started attempt came: it counts.
-- Guard: the runtime's heartbeat, read again under its row lock; each attempt's bit or lease row, so what completed meanwhile
-- stays completed. Locks: runtimes (skip locked), receipts, leases. Errors: AW001, AW002.
create or replace function {schema}.rescue_stale(p_stale_s float8, p_limit int, p_connected_s float8 default null)
returns table(runtime_id uuid, attempts int, failed int, cancelled int, jobs bigint[])
language plpgsql volatile
set search_path = {schema}, pg_catalog, pg_temp
set jit = off
as $$
#variable_conflict use_column
declare
    v_found uuid[];
    v_connected_s float8 := coalesce(p_connected_s, 'infinity');
begin
    perform require_read_committed('rescue_stale');
    if p_stale_s is null or not (p_stale_s between 0 and 86400) or p_limit is null or p_limit < 1 then
        perform refuse_request('', 'stale_s: must be 0 to 86400 seconds, and the limit at least 1');
    end if;
    with silent as (
        select r.runtime_id
        from runtimes as r
        cross join lateral (select stale_time(r.info, p_stale_s) as stale_s) as own
        where r.state = 'alive' and r.heartbeat_at < clock_timestamp() - make_interval(secs => own.stale_s)
            and own.stale_s <= v_connected_s
        order by r.runtime_id
        for update of r skip locked
    ),
    marked as (
        update runtimes as r set state = 'gone' from silent as s where r.runtime_id = s.runtime_id
        returning r.runtime_id
    )
    select array_agg(m.runtime_id) into v_found from marked as m;
    delete from runtimes as r where r.state = 'gone' and r.heartbeat_at < clock_timestamp() - interval '24 h';
    return query
    with lost as materialized (select l.*, row_number() over () as n from lost_attempts(
            case when p_stale_s <= v_connected_s then p_stale_s end, p_limit) as l),
    ended as materialized (
        select e.item, e.state
        from (
            select
                array_agg(l.n::int) as items, array_agg(l.slot) as slots, array_agg(l.receipt_id) as receipts,
                array_agg(l.nonce) as nonces, array_agg(l.idx) as indexes, array_agg(l.job_id) as job_ids,
                array_agg(l.run_lease) as leases, array_agg('lost'::text) as outcomes,
                array_agg(null::float8) as delays,
                array_agg(jsonb_build_object(
                    'error', format('the pool %s(runtime %s) that held it is gone',
                        case when r.host is not null then format('on %s with pid %s ', r.host, r.pid) end,
                        l.runtime_id),
                    'type', 'RuntimeLost')) as errors,
                array_agg(null::text) as reasons
            from lost as l
            left join runtimes as r on r.runtime_id = l.runtime_id
        ) as a
        cross join lateral end_attempts(
            a.items, a.slots, a.receipts, a.nonces, a.indexes, a.job_ids, a.leases, a.outcomes, a.delays, a.errors,
            a.reasons) as e
        where a.items is not null and e.status = 'done'
    )
    select
        l.runtime_id, count(e.item)::int, (count(*) filter (where e.state = 'failed'))::int,
        (count(*) filter (where e.state = 'cancelled'))::int,
        coalesce(
            (array_agg(l.job_id order by e.state = 'failed' desc, l.n) filter (where e.item is not null))[1:5], '{}')
    from (
        select l.runtime_id, l.n, l.job_id from lost as l
        union all
        select f.id, null, null from unnest(v_found) as f(id)
    ) as l
    left join ended as e on e.item = l.n
    group by l.runtime_id
    order by l.runtime_id;
end
$$;
