-- The least that still is this algorithm: bodies appended once, a claim by snapshot cursor, receipts with a bitmap.
-- One slot, one queue; no retries, no rotation, no guards beyond the bit itself.
create schema bare;

create table bare.ready (
    job_id bigint generated always as identity,
    txid xid8 not null default pg_current_xact_id(),
    queue text collate "C" not null,
    priority smallint not null default 2,
    kind text not null,
    args json not null,
    attempt smallint not null default 0,
    max_attempts smallint not null default 25,
    run_at timestamptz not null default now(),
    created_at timestamptz not null default now()
);
create index ready_lane on bare.ready (queue, priority, txid, job_id);

create table bare.receipts (
    receipt_id bigint generated always as identity primary key,
    queue text collate "C" not null,
    job_ids bigint[] not null,
    n smallint not null,
    closed bigint not null default 0,
    claimed_at timestamptz not null default now()
) with (fillfactor = 60);

create table bare.completions (
    receipt_id bigint not null,
    mask bigint not null,
    finalized_at timestamptz not null default clock_timestamp()
);

create table bare.cursors (
    seq bigint generated always as identity primary key,
    queue text collate "C" not null,
    priority smallint not null,
    prev pg_snapshot not null,
    cur pg_snapshot not null,
    txid xid8 not null,
    job_id bigint not null
);
create index cursors_newest on bare.cursors (queue, priority, seq desc);

-- claim(queue, priority, jobs, jobs per receipt) -> (receipt, jobs in it, their bodies as one JSON array)
create function bare.claim(p_queue text, p_priority smallint, p_limit int, p_chunk int)
returns table (receipt_id bigint, n int, jobs text)
language plpgsql
set search_path = bare, pg_catalog
set jit = off
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
as $$
declare
    place record;
    late xid8[];
    moved boolean := false;
    found_receipts int;
begin
    if not pg_try_advisory_xact_lock(hashtext('bare'), hashtext(p_queue)) then
        return;
    end if;
    select c.prev, c.cur, c.txid, c.job_id into place
    from cursors c where c.queue = p_queue and c.priority = p_priority order by c.seq desc limit 1;
    if not found then
        moved := true;
        select '1:1:'::pg_snapshot as prev, pg_current_snapshot() as cur, '0'::xid8 as txid, 0::bigint as job_id into place;
    end if;
    loop
        late := array(
            select x from pg_snapshot_xip(place.prev) x where x >= place.txid and pg_visible_in_snapshot(x, place.cur)
        );
        return query
        with candidates as (
            select * from (
                select r.txid, r.job_id, r.kind, r.args, r.attempt, r.max_attempts
                from unnest(late) x
                cross join lateral (
                    select * from ready one
                    where one.queue = p_queue and one.priority = p_priority and one.txid = x
                        and (one.txid, one.job_id) > (place.txid, place.job_id)
                    order by one.job_id limit p_limit
                ) r
            ) ended_late
            union all
            select * from (
                select r.txid, r.job_id, r.kind, r.args, r.attempt, r.max_attempts
                from ready r
                where r.queue = p_queue and r.priority = p_priority
                    and (r.txid, r.job_id) > (place.txid, place.job_id)
                    and r.txid >= pg_snapshot_xmax(place.prev) and r.txid < pg_snapshot_xmax(place.cur)
                    and pg_visible_in_snapshot(r.txid, place.cur)
                order by r.txid, r.job_id limit p_limit
            ) in_window
        ), taken as (
            select c.*, row_number() over (order by c.txid, c.job_id) - 1 as position
            from candidates c order by c.txid, c.job_id limit p_limit
        ), chunks as (
            select nextval(pg_get_serial_sequence('bare.receipts', 'receipt_id')) as receipt_id,
                count(*)::int as n,
                array_agg(t.job_id order by t.position) as job_ids,
                string_agg(
                    '[' || t.job_id || ',' || to_json(t.kind)::text || ',' || t.args::text || ',' || t.attempt + 1
                    || ',' || t.max_attempts || ']', ',' order by t.position
                ) as bodies
            from taken t group by t.position / p_chunk
        ), written as (
            insert into receipts (receipt_id, queue, job_ids, n) overriding system value
            select c.receipt_id, p_queue, c.job_ids, c.n from chunks c
        ), advanced as (
            insert into cursors (queue, priority, prev, cur, txid, job_id)
            select p_queue, p_priority, place.prev, place.cur, last.txid, last.job_id
            from (select t.txid, t.job_id from taken t order by t.position desc limit 1) last
        )
        select c.receipt_id, c.n, '[' || c.bodies || ']' from chunks c;
        get diagnostics found_receipts = row_count;
        exit when found_receipts > 0 or moved;
        moved := true;
        select place.cur as prev, pg_current_snapshot() as cur, '0'::xid8 as txid, 0::bigint as job_id into place;
    end loop;
end
$$;

-- complete(receipts, masks) -> (receipt, the bits that this call closed)
create function bare.complete(p_receipts bigint[], p_masks bigint[])
returns table (receipt bigint, newly bigint)
language sql
set search_path = bare, pg_catalog
set jit = off
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
as $$
    with asked as materialized (
        select a.receipt_id, bit_or(a.mask) as mask from unnest(p_receipts, p_masks) as a (receipt_id, mask) group by 1
    ), locked as materialized (
        select r.receipt_id, a.mask & ~r.closed & (9223372036854775807 >> (63 - r.n)) as newly
        from asked a join receipts r using (receipt_id) order by r.receipt_id for update of r
    ), closed as (
        update receipts r set closed = r.closed | l.newly from locked l
        where r.receipt_id = l.receipt_id and l.newly <> 0
    ), noted as (
        insert into completions (receipt_id, mask) select l.receipt_id, l.newly from locked l where l.newly <> 0
    )
    select l.receipt_id, l.newly from locked l
$$;
