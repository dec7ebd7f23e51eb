-- retry_dead(filter, from, limit, run_at, priority, queue) -> a row per job of the page, in its order: status 'done' with the new
-- state, or 'refused' with the reason why; such a job stays where it is. One batch: call again from the last row on.
-- Arrow: failed (dead) -> available, or scheduled where run_at lies ahead. Same id, errors, metadata and tags; attempts start over,
-- progress goes. run_lease goes on rising, so no result of an attempt before counts for one after.
-- A job whose unique key another job holds is refused, with the holder named.
-- Guard: the row in jobs_dead. Locks: these rows, skip locked; then keys. Errors: AW001, AW002.
--
-- Goes to the end of its lane and not to jobs_returned, so that very many hold up nobody. But not in a transaction that wrote
-- before: the job may have left a tombstone under the same xid, or been claimed meanwhile by a receipt that spans this xid.
create or replace function {schema}.retry_dead(
    p_ids bigint[], p_kind text, p_queue text, p_tag text, p_reason text, p_after timestamptz, p_before timestamptz,
    p_from_at timestamptz, p_from_id bigint, p_limit int,
    p_run_at timestamptz, p_new_priority int, p_new_queue text
) returns table(job_id bigint, died_at timestamptz, status text, detail text)
language plpgsql volatile
set search_path = {schema}, pg_catalog, pg_temp
set jit = off
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
as $$
#variable_conflict use_column
declare
    v_begun boolean := pg_current_xact_id_if_assigned() is not null;
    v_later boolean := coalesce(p_run_at > clock_timestamp(), false);
    v_ids bigint[];
    v_times timestamptz[];
    v_risen bigint[];
    v_refusals jsonb;
    v_queues text[];
    v_keys bytea[];
    v_masks int[];
    v_kept int[];  -- places of those whose keys others hold
begin
    perform require_read_committed('retry_dead');
    perform refuse_request('', f.flaw)
    from (select coalesce(
        case when p_new_priority not between 1 and 4 then 'priority: must be 1 to 4' end,
        case when length(p_new_queue) not between 1 and 200 then 'queue: must have 1 to 200 characters' end,
        'run_at: ' || run_at_flaw(p_run_at)) as flaw) as f
    where f.flaw is not null;
    select array_agg(p.job_id), array_agg(p.died_at) into v_ids, v_times
    from dead_page(
        p_ids, p_kind, p_queue, p_tag, p_reason, p_after, p_before, false, p_from_at, p_from_id, p_limit) as p;
    with held as materialized (
        select x.*
        from jobs_dead as x
        where x.job_id = any (v_ids)
        order by x.job_id
        for update skip locked
    ),
    judged as materialized (
        select
            h.job_id,
            body_flaw(
                coalesce(p_new_queue, h.queue), coalesce(p_new_priority, h.priority), h.kind, 0, h.max_attempts, h.tags,
                h.run_lease, h.snoozes) as flaw,
            h.unique_key, h.unique_states::int as mask
        from held as h
    )
    select
        array_agg(j.job_id) filter (where j.flaw is null),
        coalesce(jsonb_object_agg(j.job_id, j.flaw) filter (where j.flaw is not null), '{}'),
        array_agg(j.unique_key) filter (where j.flaw is null), array_agg(j.mask) filter (where j.flaw is null)
    into v_risen, v_refusals, v_keys, v_masks
    from judged as j;
    select
        coalesce(jsonb_object_agg(
            v_risen[m.place],
            case when m.holder is null then 'its unique key is about to change hands'
                else format('job %s holds its unique key', m.holder) end), '{}') || v_refusals,
        array_agg(m.place)
    into v_refusals, v_kept
    from move_keys(
        v_risen, v_keys, v_masks, array_fill('failed'::text, array[coalesce(cardinality(v_risen), 0)]),
        case when v_later then 'scheduled' else 'available' end) as m;
    if v_kept is not null then
        v_risen := array(
            select r.id from unnest(v_risen) with ordinality as r(id, place) where r.place <> all (v_kept));
    end if;
    with gone as materialized (
        delete from jobs_dead as x where x.job_id = any (v_risen) returning x.*
    ),
    body as materialized (
        select
            g.*, coalesce(p_new_queue, g.queue) as to_queue, coalesce(p_new_priority, g.priority)::smallint as to_priority,
            v_later as later,
            v_begun as again
        from gone as g
    ),
    later as (
        insert into jobs_deferred (
            job_id, queue, priority, kind, args, max_attempts, run_lease, run_at, created_at, metadata, tags,
            ordering_key, errors, snoozes, deadline_s, unique_key, unique_states, state)
        select
            b.job_id, b.to_queue, b.to_priority, b.kind, b.args, b.max_attempts, b.run_lease, p_run_at, b.created_at,
            b.metadata, b.tags, b.ordering_key, b.errors, b.snoozes, b.deadline_s, b.unique_key, b.unique_states,
            'scheduled'
        from body as b
        where b.later
    ),
    back as (
        insert into jobs_returned (
            job_id, queue, priority, kind, args, max_attempts, run_lease, run_at, created_at, metadata, tags,
            ordering_key, errors, snoozes, deadline_s, unique_key, unique_states)
        select
            b.job_id, b.to_queue, b.to_priority, b.kind, b.args, b.max_attempts, b.run_lease, clock_timestamp(),
            b.created_at, b.metadata, b.tags, b.ordering_key, b.errors, b.snoozes, b.deadline_s, b.unique_key,
            b.unique_states
        from body as b
        where not b.later and b.again
    ),
    put as (
        insert into jobs_ready (
            job_id, queue, priority, kind, args, max_attempts, run_lease, run_at, created_at, metadata, tags,
            ordering_key, errors, snoozes, deadline_s, unique_key, unique_states)
        select
            b.job_id, b.to_queue, b.to_priority, b.kind, b.args, b.max_attempts, b.run_lease, clock_timestamp(),
            b.created_at, b.metadata, b.tags, b.ordering_key, b.errors, b.snoozes, b.deadline_s, b.unique_key,
            b.unique_states
        from body as b
        where not b.later and not b.again
    )
    select array_agg(distinct b.to_queue) into v_queues from body as b;
    if v_queues is not null and not v_later then
        perform notify_waiters(v_queues);
    end if;
    return query
    select
        i.id, i.at, case when i.id = any (v_risen) then 'done' else 'refused' end,
        case
            when i.id = any (v_risen) then case when v_later then 'scheduled' else 'available' end
            else coalesce(v_refusals ->> i.id::text, 'held by another session')
        end
    from unnest(v_ids, v_times) with ordinality as i(id, at, n)
    order by i.n;
end
$$;
