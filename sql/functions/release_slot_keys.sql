-- release_slot_keys(slot, retention_s) -> null when the unique keys of all jobs that completed in the slot are seen to, else what
-- was done: some thousands a call, so that no producer waits long for one of them. Comes before the slot is locked and emptied.
-- Locks: the rows of unique_claims; the slot's row. Errors: none.
create or replace function {schema}.release_slot_keys(p_slot int, p_retention_s float8) returns text
language plpgsql volatile
set search_path = {schema}, pg_catalog, pg_temp
as $$
declare
    v_from bigint := (select s.keys_to from slots as s where s.slot = p_slot);
    v_to bigint := v_from;
    v_last bigint;
begin
    for i in 1 .. 5 loop
        execute format('select release_keys_%s($1, 2000, $2)', p_slot) into v_last using v_to, p_retention_s;
        exit when v_last is null;
        v_to := v_last;
    end loop;
    if v_to > v_from then
        update slots set keys_to = v_to where slot = p_slot;
    end if;
    return case when v_last is not null then format('slot %s: keys released up to job %s', p_slot, v_to) end;
end
$$;
