-- breaking
-- Every table of the queue engine. Ring tables are partitioned by slot; one slot is current, its number is the
-- last value of the sequence current_slot (a sequence is read fresh under every isolation level).

create table {schema}.meta (
    one boolean primary key default true check (one),
    version int not null,
    engine text not null default 'queue',
    system_identifier bigint not null,
    created_at timestamptz not null default now()
);

create sequence {schema}.job_id_seq;
create sequence {schema}.receipt_id_seq;
create sequence {schema}.cursor_seq;
create sequence {schema}.window_id_seq;
create sequence {schema}.current_slot minvalue 0 maxvalue 23 start 0;
select setval('{schema_text}.current_slot', 0);
-- What a row's slot defaults to; functions/slot_now.sql says why it is declared stable.
create function {schema}.slot_now() returns smallint language plpgsql stable as $$
begin
    return pg_sequence_last_value('{schema_text}.current_slot'::regclass);
end
$$;

-- The columns of a job's body, in the order every table and function uses.
create type {schema}.body as (
    job_id bigint, queue text, priority smallint, kind text, args json, attempt smallint, max_attempts smallint,
    run_lease bigint, run_at timestamptz, created_at timestamptz, metadata json, tags text[], ordering_key text,
    errors jsonb, snoozes int, deadline_s float8, unique_key bytea, unique_states smallint, progress json
);

-- txid stands before slot: defaults are evaluated in this order, so a producer owns its xid before it reads
-- which slot is current, and a slot is safe to close once every older xid has ended.
create table {schema}.jobs_ready (
    job_id bigint not null default nextval('{schema_text}.job_id_seq'),
    queue text collate "C" not null default 'default',
    priority smallint not null default 2,
    kind text not null,
    args json not null,
    attempt smallint not null default 0,
    max_attempts smallint not null default 25,
    run_lease bigint not null default 0,
    run_at timestamptz not null default now(),
    created_at timestamptz not null default now(),
    metadata json,
    tags text[],
    ordering_key text,
    errors jsonb,
    snoozes int not null default 0,
    deadline_s float8,
    unique_key bytea,
    unique_states smallint,
    progress json,
    txid xid8 not null default pg_current_xact_id(),
    slot smallint not null default {schema}.slot_now(),
    -- One constraint, and bytes before characters: as eight it took a sixth of a COPY's time.
    constraint jobs_ready_is_sound check (
        (octet_length(queue) between 1 and 200 or char_length(queue) between 1 and 200)
        and (octet_length(kind) between 1 and 200 or char_length(kind) between 1 and 200)
        and priority between -4 and 4 and priority <> 0
        and max_attempts between 1 and 1000
        and attempt between 0 and 32000
        and run_lease between 0 and 4611686018427387904
        and snoozes >= 0
        and (tags is null or cardinality(tags) <= 20))
) partition by list (slot);
-- Uncompressed out of line: pg_column_size is then the size a claim will hand out, known without reading it.
alter table {schema}.jobs_ready alter column args set storage external;
-- Keys never repeat: looking for duplicates before each page split would find none.
create index jobs_ready_lane on {schema}.jobs_ready (queue, priority, txid, job_id) with (deduplicate_items = off);
create index jobs_ready_id on {schema}.jobs_ready
    using brin (job_id int8_minmax_multi_ops) with (pages_per_range = 16);

-- One row per claimed chunk of up to 63 jobs. Bit i of closed: attempt i has ended (or was moved to leases).
create table {schema}.receipts (
    slot smallint not null,
    receipt_id bigint not null,
    nonce bigint not null,
    queue text collate "C" not null,
    priority smallint not null,
    from_txid xid8 not null,
    from_id bigint not null,
    to_txid xid8 not null,
    to_id bigint not null,
    job_ids bigint[] not null,
    leases bigint[],
    n smallint not null check (n between 1 and 63),
    closed bigint not null default 0 check (closed & ~(9223372036854775807 >> (63 - n)) = 0),
    runtime_id uuid,
    request_id bigint,
    claimed_at timestamptz not null default now()
) partition by list (slot);
create unique index receipts_id on {schema}.receipts (receipt_id, slot);
create index receipts_range on {schema}.receipts (queue, priority, to_txid, to_id);

-- outcome: 1 completed 2 retried 3 snoozed 4 failed 5 cancelled 6 returned 7 lost 8 moved 9 parked
create table {schema}.completions (
    slot smallint not null,
    receipt_id bigint not null,
    mask bigint not null,
    outcome smallint not null check (outcome between 1 and 9),
    finalized_at timestamptz not null default now()
) partition by list (slot);
create index completions_receipt on {schema}.completions (receipt_id);

-- A ready job that was taken out of its lane before any claim: claims step over it.
create table {schema}.tombstones (
    slot smallint not null,
    job_id bigint not null,
    txid xid8 not null,
    reason text not null,
    created_at timestamptz not null default now()
) partition by list (slot);
create index tombstones_job on {schema}.tombstones (job_id);

-- Rows of a slot live and die together, so vacuum has nothing to do here, and an autovacuum that never yields
-- to a short lock_timeout would lock prune out.
do $do$
declare
    name text;
begin
    for i in 0..23 loop
        foreach name in array array['jobs_ready', 'receipts', 'completions', 'tombstones'] loop
            execute format('create table {schema}.%I partition of {schema}.%I for values in (%s) with (autovacuum_enabled = off%s%s)',
                name || '_' || i, name, i,
                case when name = 'receipts' then ', fillfactor = 60' else '' end,
                case when name = 'completions' then '' else ', toast.autovacuum_enabled = off' end);
        end loop;
        -- Rows put straight into a slot's partition (COPY does so) find their slot there.
        execute format('alter table {schema}.%I alter slot set default %s', 'jobs_ready_' || i, i);
    end loop;
end
$do$;

-- free -> current -> sealed -> exhausted -> free. sealed_xid: an xid taken after the slot was no longer current.
-- open_from: no receipt with a smaller id was open when the sweep looked (a hint, for audits).
create table {schema}.slots (
    slot smallint primary key check (slot between 0 and 23),
    generation bigint not null default 0,
    state text not null default 'free' check (state in ('free', 'current', 'sealed', 'exhausted')),
    opened_at timestamptz,
    sealed_at timestamptz,
    sealed_xid xid8,
    exhausted_at timestamptz,
    open_from bigint not null default 0
) with (fillfactor = 50);
insert into {schema}.slots (slot, generation, state, opened_at)
    select i, case when i = 0 then 1 else 0 end, case when i = 0 then 'current' else 'free' end,
           case when i = 0 then now() end
      from generate_series(0, 23) as i;

-- A lane is (slot, queue, priority). Its newest cursor says what has been claimed: everything visible in
-- prev, and what is visible in cur up to (txid, job_id).
create table {schema}.cursor_windows (
    window_id bigint primary key default nextval('{schema_text}.window_id_seq'),
    prev pg_snapshot not null,
    cur pg_snapshot not null
);
create table {schema}.cursors (
    slot smallint not null,
    queue text collate "C" not null,
    priority smallint not null,
    seq bigint not null default nextval('{schema_text}.cursor_seq'),
    window_id bigint not null,
    txid xid8 not null,
    job_id bigint not null
) with (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000);
create index cursors_lane on {schema}.cursors (slot, queue, priority, seq desc);

-- Queues with nothing left in a sealed slot: claims pass the slot by until the sweep removes the mark. A mark holds
-- for one generation of the slot, so that one written late cannot hide the slot's next life.
create table {schema}.drained_lanes (
    slot smallint not null,
    generation bigint not null,
    queue text collate "C" not null,
    drained_at timestamptz not null default now(),
    primary key (queue, slot, generation)
);

create table {schema}.jobs_deferred (
    job_id bigint primary key,
    queue text collate "C" not null,
    priority smallint not null,
    kind text not null,
    args json not null,
    attempt smallint not null default 0,
    max_attempts smallint not null default 25,
    run_lease bigint not null default 0,
    run_at timestamptz not null,
    created_at timestamptz not null default now(),
    metadata json,
    tags text[],
    ordering_key text,
    errors jsonb,
    snoozes int not null default 0,
    deadline_s float8,
    unique_key bytea,
    unique_states smallint,
    progress json,
    state text not null check (state in ('scheduled', 'retryable'))
);
create index jobs_deferred_due on {schema}.jobs_deferred (run_at, job_id);
create index jobs_deferred_queue on {schema}.jobs_deferred (queue, state, job_id);

create table {schema}.jobs_returned (
    job_id bigint primary key,
    queue text collate "C" not null,
    priority smallint not null,
    kind text not null,
    args json not null,
    attempt smallint not null default 0,
    max_attempts smallint not null default 25,
    run_lease bigint not null default 0,
    run_at timestamptz not null default now(),
    created_at timestamptz not null default now(),
    metadata json,
    tags text[],
    ordering_key text,
    errors jsonb,
    snoozes int not null default 0,
    deadline_s float8,
    unique_key bytea,
    unique_states smallint,
    progress json
);
alter table {schema}.jobs_returned alter column args set storage external;
create index jobs_returned_lane on {schema}.jobs_returned (queue, priority, job_id);

create table {schema}.jobs_finished (
    job_id bigint primary key,
    queue text collate "C" not null,
    priority smallint not null,
    kind text not null,
    args json not null,
    attempt smallint not null default 0,
    max_attempts smallint not null default 25,
    run_lease bigint not null default 0,
    run_at timestamptz not null,
    created_at timestamptz not null,
    metadata json,
    tags text[],
    ordering_key text,
    errors jsonb,
    snoozes int not null default 0,
    deadline_s float8,
    unique_key bytea,
    unique_states smallint,
    progress json,
    state text not null check (state in ('failed', 'cancelled', 'completed')),
    reason text,
    finalized_at timestamptz not null default now()
);
create index jobs_finished_state on {schema}.jobs_finished (state, job_id);
create index jobs_finished_queue on {schema}.jobs_finished (queue, state, job_id);
create index jobs_finished_age on {schema}.jobs_finished (finalized_at);

-- Attempts moved out of their receipt: from then on this row is their guard. The body is as it was before the
-- attempt, as in the ring: the attempt's own run_lease is run_lease + 1, its number attempt + 1.
create table {schema}.leases (
    job_id bigint not null,
    queue text collate "C" not null,
    priority smallint not null,
    kind text not null,
    args json not null,
    attempt smallint not null default 0,
    max_attempts smallint not null default 25,
    run_lease bigint not null default 0,
    run_at timestamptz not null,
    created_at timestamptz not null,
    metadata json,
    tags text[],
    ordering_key text,
    errors jsonb,
    snoozes int not null default 0,
    deadline_s float8,
    unique_key bytea,
    unique_states smallint,
    progress json,
    receipt_id bigint not null,
    nonce bigint not null,
    idx smallint not null check (idx between 0 and 62),
    slot smallint not null,
    runtime_id uuid,
    state text not null default 'running' check (state in ('running', 'waiting_external')),
    request_id bigint,
    claimed_at timestamptz not null,
    primary key (receipt_id, idx)
);
create index leases_job on {schema}.leases (job_id);
create index leases_runtime on {schema}.leases (runtime_id);
create index leases_queue on {schema}.leases (queue);

create table {schema}.queues (
    queue text collate "C" primary key check (char_length(queue) between 1 and 200),
    paused_at timestamptz,
    created_at timestamptz not null default now()
);

create table {schema}.queue_waiters (
    queue text collate "C" primary key,
    until timestamptz not null
) with (fillfactor = 50);

create table {schema}.runtimes (
    runtime_id uuid primary key,
    host text not null,
    pid int not null,
    started_at timestamptz not null default now(),
    heartbeat_at timestamptz not null default now(),
    info jsonb not null default '{}',
    state text not null default 'alive' check (state in ('alive', 'gone'))
) with (fillfactor = 50);

create table {schema}.leader (
    name text primary key,
    holder uuid not null,
    until timestamptz not null
) with (fillfactor = 50);
