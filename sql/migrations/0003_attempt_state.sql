-- What a running attempt has said of its progress: a row for the few that say anything, gone with the attempt.
create table {schema}.attempt_state (
    job_id bigint primary key,
    run_lease bigint not null,
    slot smallint not null,
    receipt_id bigint not null,
    nonce bigint not null,
    idx smallint not null,
    progress json not null,
    written_at timestamptz not null default clock_timestamp()
) with (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000);
