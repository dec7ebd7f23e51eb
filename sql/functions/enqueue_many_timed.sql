-- enqueue_many_timed(json, ids, new, own) -> job ids in order. The part of enqueue_many for documents that name due times or keys.
-- `ids`: those drawn before, while keys were taken; of them only what is `new` is put in. Null: none were.
-- `own`: the requests are follow-ups, which passed the gate of this package and may name in metadata what belongs to the queue.
-- Errors: AW001 (by refuse_item), class 22 where a value has another type than its column.
create or replace function {schema}.enqueue_many_timed(
    p_jobs json, p_ids bigint[] default null, p_new boolean[] default null, p_own boolean default false
) returns bigint[]
language plpgsql volatile
set search_path = {schema}, pg_catalog, pg_temp
set jit = off
set plan_cache_mode = force_generic_plan
as $$
declare
    v_ids bigint[];
    v_notify boolean;
begin
    with item as materialized (
        select
            coalesce(j.given, nextval('job_id_seq')) as job_id, coalesce(j.is_new, true) as is_new, j.place, j.kind, j.args, coalesce(j.queue, 'default') as queue,
            coalesce(j.priority, 2) as priority, coalesce(j.max_attempts, 25) as max_attempts, j.metadata, j.tags,
            j.ordering_key, j.deadline_s, decode(j.unique_key, 'hex') as unique_key,
            case when j.unique_key is not null then coalesce(j.unique_states, 31) end as unique_states,
            case when j.run_at is not null then parse_run_at(j.run_at) end as run_at, j.run_at as said
        from rows from (
            json_to_recordset(p_jobs) as (
                kind text, args json, queue text, priority int, max_attempts int, metadata json, tags text[],
                ordering_key text, deadline_s float8, unique_key text, unique_states int, run_at text),
            unnest(p_ids), unnest(p_new)
        ) with ordinality
            as j(kind, args, queue, priority, max_attempts, metadata, tags, ordering_key, deadline_s, unique_key,
                unique_states, run_at, given, is_new, place)
    ),
    checked as materialized (
        select
            i.*,
            case when p_own or args_fit(i.args)
                and request_fits(
                    i.kind, i.queue, i.priority, i.max_attempts, i.metadata, i.tags, i.ordering_key)
                and deadline_fits(i.deadline_s)
                and (i.said is null or i.run_at is not null)
                then i.kind
                else refuse_item(p_jobs)
            end as sound_kind
        from item as i
    ),
    put as (
        insert into jobs_ready (
            job_id, kind, args, queue, priority, max_attempts, metadata, tags, ordering_key, deadline_s, unique_key,
            unique_states)
        select
            c.job_id, c.sound_kind, c.args, c.queue, c.priority, c.max_attempts, c.metadata, c.tags, c.ordering_key,
            c.deadline_s, c.unique_key, c.unique_states
        from checked as c
        where c.is_new and (c.run_at is null or c.run_at <= statement_timestamp())
        returning queue
    ),
    kept as (
        insert into jobs_deferred (
            job_id, kind, args, queue, priority, max_attempts, run_at, metadata, tags, ordering_key,
            deadline_s, unique_key, unique_states, state)
        select
            c.job_id, c.sound_kind, c.args, c.queue, c.priority, c.max_attempts, c.run_at, c.metadata, c.tags,
            c.ordering_key, c.deadline_s, c.unique_key, c.unique_states, 'scheduled'
        from checked as c
        where c.is_new and c.run_at > statement_timestamp()
    )
    select
        array(select c.job_id from checked as c order by c.place),
        exists (
            select from queue_waiters as w
            where w.until > clock_timestamp() and exists (select from put as p where p.queue = w.queue))
    into v_ids, v_notify;
    if v_notify then
        perform pg_notify('awa_pool', '');
    end if;
    return v_ids;
end
$$;
