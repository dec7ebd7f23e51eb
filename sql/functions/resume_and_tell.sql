-- resume_and_tell(callback, payload, inout job_id, number, state): resume_external in a transaction of its own, and in one after it the
-- word for the pool that waits. PostgreSQL lets transactions that notify commit one at a time, each with its wait for the disk: so
-- none does that waits, and senders commit side by side. What the second one writes nobody misses: pools ask by themselves too.
-- Arrow, guard, locks: as resume_external. Errors: as resume_external; 2D000 inside a transaction of the caller's.
--
-- A procedure, for it commits. It has no settings of its own, which would forbid that.
create or replace procedure {schema}.resume_and_tell(
    p_callback text, p_payload json, inout job_id bigint default null, inout number int default null,
    inout state text default null)
language plpgsql
as $$
begin
    select r.job_id, r.number, r.state into job_id, number, state
    from {schema}.resume_external(p_callback, p_payload, false) as r;
    commit;
    perform pg_catalog.set_config('synchronous_commit', 'off', true);
    perform pg_catalog.pg_notify(
        'awa_pool', pg_catalog.format('callback %s resumed', {schema}.callback_uuid(p_callback)));
end
$$;
