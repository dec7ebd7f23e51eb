-- with_answer(metadata, number, payload) -> the metadata with the answer to callback `number` under the key awa:callback, in place of
-- an earlier one: what a job that was parked finds when it runs again, over all its attempts until a newer answer.
-- Every value keeps its own spelling. Guard: none. Locks: none. Errors: none.
create or replace function {schema}.with_answer(p_metadata json, p_number int, p_payload json) returns json
language plpgsql immutable
as $$
declare
    v_kept text;
begin
    if json_typeof(p_metadata) = 'object' then
        select string_agg(to_json(e.key)::text || ':' || e.value::text, ',' order by e.place) into v_kept
        from json_each(p_metadata) with ordinality as e(key, value, place)
        where e.key <> 'awa:callback';
    end if;
    return '{' || concat_ws(',',
        v_kept, '"awa:callback":{"number":' || p_number || ',"payload":' || p_payload::text || '}') || '}';
end
$$;
