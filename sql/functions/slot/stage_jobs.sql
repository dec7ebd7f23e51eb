-- stage_jobs_<slot>(json array) -> how many jobs were put in: put_jobs_<slot> for the few follow-ups of one attempt, where the
-- cost is that of a statement and not of rows: no ids to gather (65 µs through put_jobs_<slot>, 40 µs here).
-- The caller owns its xid, and read which slot is current after that. The requests were sealed by a worker of this package.
-- Arrow: (new) -> available. Guard: none. Locks: none but the new rows'. Errors: AW001 (by refuse_item), class 22, 23502, 23514.
create or replace function {schema}.stage_jobs_{slot}(p_jobs json) returns int
language plpgsql volatile
as $$
declare
    v_count int;
begin
    -- Ids are drawn in the order of the document.
    insert into {schema}.jobs_ready_{slot} (
        slot, kind, args, queue, priority, max_attempts, metadata, tags, ordering_key, deadline_s)
    select
        {slot},
        case when json_typeof(j.args) = 'object' and coalesce(j.priority, 2) > 0 then j.kind
            else {schema}.refuse_item(p_jobs) end,
        j.args, coalesce(j.queue, 'default'), coalesce(j.priority, 2), coalesce(j.max_attempts, 25),
        j.metadata, j.tags, j.ordering_key, j.deadline_s
    from json_to_recordset(p_jobs) as j(
        kind text, args json, queue text, priority int, max_attempts int, metadata json, tags text[],
        ordering_key text, deadline_s float8);
    get diagnostics v_count = row_count;
    if exists (select from {schema}.queue_waiters as w where w.until > clock_timestamp()) then
        perform {schema}.tell_waiters_{slot}();
    end if;
    return v_count;
end
$$;
