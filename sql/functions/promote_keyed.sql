-- promote_keyed(ids) -> how many became available. The part of promote for due jobs of which the unique key changes hands.
-- Arrow: scheduled, retryable -> available; -> cancelled where another job holds the key (reason: duplicate of job N), so that
-- it never stands in the way of the others. One whose key is about to change hands elsewhere stays where it is for this time.
-- Guard: the deferred rows, locked by the caller. Locks: keys, as key_pass. Errors: 40P01.
create or replace function {schema}.promote_keyed(p_ids bigint[]) returns int
language plpgsql volatile
set search_path = {schema}, pg_catalog, pg_temp
set jit = off
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
as $$
declare
    b record;
    v_count int;
begin
    select
        array_agg(d.job_id) as ids, array_agg(d.unique_key) as keys, array_agg(d.unique_states::int) as masks,
        array_agg(d.state) as states, null::bigint[] as kept, null::bigint[] as lost, null::text[] as reasons
    into b
    from jobs_deferred as d
    where d.job_id = any (p_ids);
    select
        array_agg(b.ids[m.place]), array_agg(b.ids[m.place]) filter (where m.holder is not null),
        array_agg(duplicate_reason(m.holder)) filter (where m.holder is not null)
    into b.kept, b.lost, b.reasons
    from move_keys(b.ids, b.keys, b.masks, b.states, 'available') as m;
    if b.lost is not null then
        with gone as materialized (
            delete from jobs_deferred as d
            using unnest(b.lost, b.reasons) as l(job_id, reason)
            where d.job_id = l.job_id
            returning d.*, l.reason
        )
        select settle_bodies(
            array_agg(row(
                g.job_id, g.queue, g.priority, g.kind, g.args, g.attempt, g.max_attempts, g.run_lease, g.run_at,
                g.created_at, g.metadata, g.tags, g.ordering_key, g.errors, g.snoozes, g.deadline_s, g.unique_key,
                g.unique_states, g.progress)::body),
            array_agg(5), array_agg(null::float8), array_agg(g.reason))
        into v_count
        from gone as g;
    end if;
    with taken as materialized (
        delete from jobs_deferred as d
        where d.job_id = any (b.ids) and d.job_id <> all (coalesce(b.kept, '{}'))
        returning d.*
    )
    insert into jobs_ready (
        job_id, queue, priority, kind, args, attempt, max_attempts, run_lease, run_at, created_at, metadata, tags,
        ordering_key, errors, snoozes, deadline_s, unique_key, unique_states, progress)
    select
        t.job_id, t.queue, t.priority, t.kind, t.args, t.attempt, t.max_attempts, t.run_lease, t.run_at, t.created_at,
        t.metadata, t.tags, t.ordering_key, t.errors, t.snoozes, t.deadline_s, t.unique_key, t.unique_states,
        t.progress
    from taken as t
    order by t.run_at, t.job_id;
    get diagnostics v_count = row_count;
    return v_count;
end
$$;
