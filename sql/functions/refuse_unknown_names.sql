-- refuse_unknown_names(json array) -> nothing, or AW001 naming the first item that has a name which is none of enqueue_many's: a
-- misspelt one would be left out without a word. What is no object is refused elsewhere.
-- Guard: none. Locks: none. Errors: AW001.
create or replace function {schema}.refuse_unknown_names(p_jobs json) returns void
language plpgsql stable
set search_path = {schema}, pg_catalog, pg_temp
set jit = off
as $$
declare
    v record;
begin
    select e.number - 1 as place, k.name into v
    from json_array_elements(p_jobs) with ordinality as e(item, number)
    cross join lateral json_object_keys(case when json_typeof(e.item) = 'object' then e.item else '{}' end) as k(name)
    where k.name not in (
        'kind', 'args', 'queue', 'priority', 'max_attempts', 'run_at', 'metadata', 'tags', 'ordering_key', 'deadline_s',
        'unique_key', 'unique_states')
    limit 1;
    if found then
        perform refuse_request(format('jobs[%s].', v.place), clip_text(v.name, 100) || ': is no name of a request');
    end if;
end
$$;
