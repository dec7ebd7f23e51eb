-- parse_ends(json array) -> a row per item (read_ends); an item that cannot be read has fault = true and no more, and does not
-- touch the others. Guard: none. Locks: none. Errors: AW006 when the document is no array.
--
-- NUL escapes in error texts are put aside first: a traceback that quotes binary data must not cost the outcome.
create or replace function {schema}.parse_ends(p_items json)
returns table(
    item int, fault boolean, slot int, receipt_id bigint, nonce bigint, idx int, job_id bigint, run_lease bigint,
    outcome text, delay_s float8, error jsonb, reason text)
language plpgsql stable parallel unsafe
set search_path = {schema}, pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
    v_items json := p_items;
    v_one json;
    v_at int := 0;
begin
    if p_items is null or json_typeof(p_items) <> 'array' then
        raise exception 'finish takes an array of items' using errcode = 'AW006';
    end if;
    if strpos(p_items::text, e'\\u0000') > 0 then
        v_items := regexp_replace(p_items::text, e'(?<!\\\\)((?:\\\\\\\\)*)\\\\u0000', e'\\1\\\\ufffd', 'g')::json;
    end if;
    begin
        return query select * from read_ends(v_items);
        return;
    exception
        when data_exception then
            null;  -- at least one item has a value of a wrong type: look at each alone
    end;
    for v_one in select a.value from json_array_elements(v_items) as a loop
        begin
            return query
            select v_at, e.fault, e.slot, e.receipt_id, e.nonce, e.idx, e.job_id, e.run_lease, e.outcome, e.delay_s,
                e.error, e.reason
            from read_ends(json_build_array(v_one)) as e;
        exception
            when data_exception then
                item := v_at;
                fault := true;
                return next;
        end;
        v_at := v_at + 1;
    end loop;
end
$$;
