-- list_dead(filter, from, limit) -> at most 1,000 dead jobs, the newest death first; page on with died_at and id of the last one.
-- args are cut to 200 characters and the last error to 300 here, so that a page stays small whatever the jobs carry.
-- Guard: none. Locks: none. Errors: AW001.
create or replace function {schema}.list_dead(
    p_kind text, p_queue text, p_tag text, p_reason text, p_after timestamptz, p_before timestamptz,
    p_from_at timestamptz, p_from_id bigint, p_limit int
) returns table(
    id bigint, kind text, queue text, priority smallint, attempt smallint, max_attempts smallint,
    created_at timestamptz, died_at timestamptz, reason text, error text, args_preview text, args_bytes int,
    tags text[])
language plpgsql stable
set search_path = {schema}, pg_catalog, pg_temp
set jit = off
as $$
#variable_conflict use_column
begin
    if p_limit is null or p_limit not between 1 and 1000 then
        perform refuse_request('', 'limit: must be 1 to 1000');
    end if;
    return query
    select
        x.job_id, x.kind, x.queue, x.priority, x.attempt, x.max_attempts, readable_time(x.created_at), x.finalized_at,
        x.reason, left(concat_ws(': ', e.last ->> 'type', e.last ->> 'error'), 300), left(a.text, 200),
        octet_length(a.text), x.tags
    from dead_page(null, p_kind, p_queue, p_tag, p_reason, p_after, p_before, true, p_from_at, p_from_id, p_limit) as p
    join jobs_dead as x on x.job_id = p.job_id
    cross join lateral (select x.args::text as text offset 0) as a
    cross join lateral (select case when jsonb_typeof(x.errors) = 'array' then x.errors -> -1 end as last) as e
    order by p.died_at desc, p.job_id desc;
end
$$;
