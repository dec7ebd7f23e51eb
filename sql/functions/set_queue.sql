-- set_queue(queue, settings) -> the queue's settings afterwards. Only the names given are changed, null puts one back to none:
-- deadline_s, dlq (true or false; null: true), dlq_retention_s. The queue need not have any job yet; settings that all are what they
-- are by themselves leave no row.
-- Guard: none. Locks: the queue's row. Errors: AW001.
create or replace function {schema}.set_queue(p_queue text, p_settings jsonb)
returns table(queue text, paused_at timestamptz, deadline_s float8, dlq boolean, dlq_retention_s float8)
language plpgsql volatile
set search_path = {schema}, pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
    v_flaw text := case
        when p_queue is null or length(p_queue) not between 1 and 200 then 'queue: must have 1 to 200 characters'
        when jsonb_typeof(p_settings) is distinct from 'object' then 'settings: must be an object'
        when exists (
            select from jsonb_object_keys(p_settings) as k where k not in ('deadline_s', 'dlq', 'dlq_retention_s'))
            then 'settings: knows deadline_s, dlq and dlq_retention_s only'
        when exists (
            select from jsonb_each(p_settings) as e
            where jsonb_typeof(e.value) not in ('null', case e.key when 'dlq' then 'boolean' else 'number' end))
            then 'settings: dlq is true or false, the others are seconds'
        when not coalesce((p_settings ->> 'deadline_s')::float8 between 0.01 and 31536000, true)
            then 'deadline_s: must be 0.01 to 31536000 seconds'
        when not coalesce((p_settings ->> 'dlq_retention_s')::float8 between 1 and 3155760000, true)
            then 'dlq_retention_s: must be 1 to 3155760000 seconds'
    end;
begin
    if v_flaw is not null then
        perform refuse_request('', v_flaw);
    end if;
    return query
    insert into queues as q (queue, deadline_s, dlq, dlq_retention_s)
    values (
        p_queue, (p_settings ->> 'deadline_s')::float8, coalesce((p_settings ->> 'dlq')::boolean, true),
        (p_settings ->> 'dlq_retention_s')::float8)
    on conflict (queue) do update set
        deadline_s = case when p_settings ? 'deadline_s' then excluded.deadline_s else q.deadline_s end,
        dlq = case when p_settings ? 'dlq' then excluded.dlq else q.dlq end,
        dlq_retention_s =
            case when p_settings ? 'dlq_retention_s' then excluded.dlq_retention_s else q.dlq_retention_s end
    returning q.queue, q.paused_at, q.deadline_s, q.dlq, q.dlq_retention_s;
    perform forget_queue(p_queue);
end
$$;
