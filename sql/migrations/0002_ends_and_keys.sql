-- breaking
-- Dead letter queue, unique keys, the settings of a queue that go with them; a lane by its number.

-- A lane's number stands for queue and priority: one comparison of eight bytes where there were two, one of them of text
-- (a COPY of 50,000 rows: 139 ms of the server's time became 124). Keys never repeat, so looking for duplicates before each
-- page split would find none. Readers name queue and priority too, which tells lanes of one number apart.
drop index {schema}.jobs_ready_lane;
create index jobs_ready_lane on {schema}.jobs_ready (hashtextextended(queue, priority), txid, job_id)
    with (deduplicate_items = off);

alter table {schema}.queues
    add column deadline_s float8 check (deadline_s between 0.01 and 31536000),
    add column dlq boolean not null default true,
    add column dlq_retention_s float8 check (dlq_retention_s > 0 and dlq_retention_s < 'infinity');

-- Failed jobs that wait for a person: out of the history's retention, until retried or purged.
create table {schema}.jobs_dead (
    like {schema}.jobs_finished including defaults,
    primary key (job_id),
    check (state = 'failed')
);
create index jobs_dead_age on {schema}.jobs_dead (finalized_at, job_id);
create index jobs_dead_queue on {schema}.jobs_dead (queue, finalized_at, job_id);
create index jobs_dead_kind on {schema}.jobs_dead (kind, finalized_at, job_id);

-- Who holds a unique key: a row stands while its job's state is in the job's mask. release_at: the job has left the
-- history before its time, the key goes at this instant.
create table {schema}.unique_claims (
    unique_key bytea not null check (octet_length(unique_key) = 16),
    job_id bigint not null,
    release_at timestamptz
) with (fillfactor = 80);
create unique index idx_awa_jobs_unique on {schema}.unique_claims (unique_key);
create index unique_claims_due on {schema}.unique_claims (release_at) where release_at is not null;

-- Bit i of keyed: the job of attempt i has a unique key. Bit i of yields: its completion changes who holds that key, so it
-- takes the road that sees to keys first. Null: none. The sequence has been called once there ever was such a receipt: until
-- then a completion learns so without a query. (An index of such receipts cost every claim and completion 3 µs.)
alter table {schema}.receipts add column keyed bigint, add column yields bigint;
create sequence {schema}.yielding_seq;
-- What a claim has to know of a job with a key; place: in the claim, or in its receipt, from 1.
create type {schema}.keyed_job as (place bigint, job_id bigint, unique_key bytea, states int);

-- Rows with a key, for the release of keys when a slot is emptied: those up to keys_to are done.
create index jobs_ready_keyed on {schema}.jobs_ready (job_id) where unique_key is not null;
alter table {schema}.slots add column keys_to bigint not null default -9223372036854775808;
create index leases_keyed on {schema}.leases (receipt_id, idx) where unique_key is not null;

-- How long an attempt of the job may take; null: as long as its task or queue says.
-- One constraint, of what could keep a claim from counting on, no more: its text is read anew for every statement (25 µs of
-- a single enqueue's 55, and now 11). The functions that put jobs in know the other bounds. Null passes a check.
alter table {schema}.jobs_ready
    drop constraint jobs_ready_is_sound,
    add constraint jobs_ready_is_sound check (
        octet_length(kind) < 801 and octet_length(queue) < 801 and abs(priority) between 1 and 4
        and attempt between 0 and 32000 and run_lease between 0 and 4611686018427387904 and snoozes >= 0
        and max_attempts between 1 and 1000 and deadline_s between 0.01 and 31536000);

-- The oldest schema version whose release may still work on this schema: pools of that release go on while it is upgraded.
alter table {schema}.meta add column works_from int not null default 1;

-- Twenty-four rows in a few pages, to be read whole: by an index a claim would visit each version of them that a snapshot
-- held elsewhere keeps (49 pages instead of 4 after 36 turns of the ring).
alter table {schema}.slots drop constraint slots_pkey;
