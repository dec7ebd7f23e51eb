-- refuse_item(json array) -> never returns when an item is at fault: AW001 naming the first such item and its field.
-- Returns null when every item is sound (then the caller's own error stands). Text, to stand where a value is wanted.
create or replace function {schema}.refuse_item(p_jobs json) returns text
language plpgsql volatile
set search_path = {schema}, pg_catalog, pg_temp
as $$
declare
    v_index bigint;
    v_flaw text;
begin
    select n.number - 1, n.flaw into v_index, v_flaw
    from (
        select e.number, item_flaw(e.item) as flaw
        from json_array_elements(p_jobs) with ordinality as e(item, number)
    ) as n
    where n.flaw is not null
    order by n.number
    limit 1;
    if found then
        perform refuse_request(
            case when v_flaw like 'item: %' then format('jobs[%s]: ', v_index) else format('jobs[%s].', v_index) end,
            v_flaw);
    end if;
    return null;
end
$$;
