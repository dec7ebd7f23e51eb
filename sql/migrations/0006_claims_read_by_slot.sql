-- What claims read and write of a slot goes with the slot, emptied by the same truncate: a snapshot that is held for hours keeps every
-- row that a delete has left behind, and the index over all of them grew by a level now and then.
-- Pools may work meanwhile: chores of the ring end first, and tables are locked in the order of a claim. In any other order this and
-- what is under way would wait for each other.
select pg_advisory_xact_lock(1635202371, hashtext({schema_name}));
lock table {schema}.drained_lanes, {schema}.cursors, {schema}.cursor_windows in access exclusive mode;
alter table {schema}.cursors rename to cursors_before;
alter table {schema}.cursor_windows rename to cursor_windows_before;
drop index {schema}.cursors_lane;

create table {schema}.cursor_windows (
    slot smallint not null,
    window_id bigint not null default nextval('{schema_text}.window_id_seq'),
    prev pg_snapshot not null,
    cur pg_snapshot not null
) partition by list (slot);
create index cursor_windows_id on {schema}.cursor_windows (window_id);
create table {schema}.cursors (
    slot smallint not null,
    queue text collate "C" not null,
    priority smallint not null,
    seq bigint not null default nextval('{schema_text}.cursor_seq'),
    window_id bigint not null,
    txid xid8 not null,
    job_id bigint not null
) partition by list (slot);
create index cursors_lane on {schema}.cursors (queue, priority, seq desc);
do $do$
declare
    name text;
begin
    for i in 0..23 loop
        foreach name in array array['cursors', 'cursor_windows'] loop
            execute format('create table {schema}.%I partition of {schema}.%I for values in (%s) with '
                           '(autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000)',
                name || '_' || i, name, i);
        end loop;
    end loop;
end
$do$;

-- The marks of one queue from a generation on are one range.
alter table {schema}.drained_lanes drop constraint drained_lanes_pkey, add primary key (queue, generation, slot);

-- The newest cursor of each lane, and the windows they refer to.
with newest as (
    select distinct on (k.slot, k.queue, k.priority) k.* from {schema}.cursors_before as k
     order by k.slot, k.queue, k.priority, k.seq desc
), windows as (
    insert into {schema}.cursor_windows (slot, window_id, prev, cur)
    select n.slot, w.window_id, w.prev, w.cur
      from (select distinct k.slot, k.window_id from newest as k) as n
      join {schema}.cursor_windows_before as w on w.window_id = n.window_id
)
insert into {schema}.cursors (slot, queue, priority, seq, window_id, txid, job_id)
select n.slot, n.queue, n.priority, n.seq, n.window_id, n.txid, n.job_id from newest as n;
drop table {schema}.cursors_before, {schema}.cursor_windows_before;

-- The slots that a claim looks into, the oldest first, in one row: the newest, found by index whatever a snapshot keeps of older
-- ones. Written by a trigger of slots, so that no change of a slot can forget it.
create table {schema}.claimable_slots (
    seq bigint primary key,
    slots int[] not null,
    generations bigint[] not null,
    sealed_at timestamptz[] not null
);
create function {schema}.note_claimable_slots() returns trigger language plpgsql as $$ begin return null; end $$;
create trigger note_claimable_slots after insert or update of state, generation, sealed_at on {schema}.slots
    for each statement execute function {schema}.note_claimable_slots();
insert into {schema}.claimable_slots (seq, slots, generations, sealed_at)
select 1, array_agg(s.slot order by s.generation), array_agg(s.generation order by s.generation),
       array_agg(s.sealed_at order by s.generation)
  from {schema}.slots as s where s.state in ('current', 'sealed');

-- Since when no row has left jobs_returned, as far as the sweep has seen: what it was told by the counters of statistics.
create table {schema}.returned_rest (
    one boolean primary key default true check (one),
    deleted bigint not null,
    since timestamptz not null
);
