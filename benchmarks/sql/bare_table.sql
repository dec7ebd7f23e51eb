-- The plainest table that holds the same rows, for the bare inserts.
create table bare_jobs (
    job_id bigint generated always as identity primary key,
    queue text not null default 'default',
    priority smallint not null default 2,
    kind text not null,
    args json not null,
    max_attempts smallint not null default 25,
    run_at timestamptz not null default now(),
    created_at timestamptz not null default now()
)
