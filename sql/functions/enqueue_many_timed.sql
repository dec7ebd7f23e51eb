-- enqueue_many_timed(json) -> job ids in order. The part of enqueue_many for documents that name due times.
-- Errors: AW001 (by refuse_item), class 22 where a value has another type than its column.
create or replace function {schema}.enqueue_many_timed(p_jobs json) returns bigint[]
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
            nextval('job_id_seq') as job_id, j.kind, j.args, coalesce(j.queue, 'default') as queue,
            coalesce(j.priority, 2) as priority, coalesce(j.max_attempts, 25) as max_attempts, j.metadata, j.tags,
            j.ordering_key, j.deadline_s, case when j.run_at is not null then parse_run_at(j.run_at) end as run_at, j.run_at as said
        from json_to_recordset(p_jobs) as j(
            kind text, args json, queue text, priority int, max_attempts int, metadata json, tags text[],
            ordering_key text, deadline_s float8, run_at text)
    ),
    checked as materialized (
        select
            i.*,
            case when args_fit(i.args)
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
            job_id, kind, args, queue, priority, max_attempts, metadata, tags, ordering_key, deadline_s)
        select
            c.job_id, c.sound_kind, c.args, c.queue, c.priority, c.max_attempts, c.metadata, c.tags, c.ordering_key,
            c.deadline_s
        from checked as c
        where c.run_at is null or c.run_at <= statement_timestamp()
        returning queue
    ),
    kept as (
        insert into jobs_deferred (
            job_id, kind, args, queue, priority, max_attempts, run_at, metadata, tags, ordering_key,
            deadline_s, state)
        select
            c.job_id, c.sound_kind, c.args, c.queue, c.priority, c.max_attempts, c.run_at, c.metadata, c.tags,
            c.ordering_key, c.deadline_s, 'scheduled'
        from checked as c
        where c.run_at > statement_timestamp()
    )
    select
        array(select c.job_id from checked as c order by c.job_id),
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
