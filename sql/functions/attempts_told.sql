-- attempts_told(json array) -> a row per item that names an attempt, for the functions on callbacks and leases. named: the attempt's
-- names are all there; sound: so is what an item on a callback needs, but for the id of a new one. turn: 1 for the first item that names this attempt. wanted_id: the id that a new
-- callback is to have; rules: its rules, null for none; over: the callback that it may replace though the attempt waits; nth: counts the callbacks
-- that the attempt has asked for; gone: nobody waits.
-- Guard: none. Locks: none. Errors: class 22 for what is no number, AW006 when the document is no array.
create or replace function {schema}.attempts_told(p_items json)
returns table(
    item int, named boolean, sound boolean, turn bigint, slot int, receipt_id bigint, nonce bigint, idx int, job_id bigint,
    run_lease bigint, timeout_s float8, callback_id uuid, wanted_id uuid, rules json,
    over uuid, nth int, gone boolean)
language plpgsql stable
set search_path = {schema}, pg_catalog, pg_temp
set jit = off
as $$
#variable_conflict use_column
begin
    if p_items is null or json_typeof(p_items) <> 'array' then
        raise exception 'an array of items is wanted' using errcode = 'AW006';
    end if;
    return query
    select
        (i.place - 1)::int, n.named,
        n.named
            and (i.timeout_s is null or i.timeout_s between 0.01 and 31536000)
            and num_nonnulls(i.timeout_s, i.callback_id) = 1 and (i.rules is null or rules_fit(i.rules))
            and (i.nth is null or i.nth between 1 and 1000000000),
        row_number() over (partition by i.receipt_id, i.index order by i.place),
        i.slot, i.receipt_id, i.nonce, i.index, i.job_id, i.run_lease, i.timeout_s, callback_uuid(i.callback_id),
        callback_uuid(i.wanted_id), nullif(i.rules::text, '{}')::json, callback_uuid(i.over), i.nth,
        coalesce(i.gone, false)
    from rows from (json_to_recordset(p_items) as (
        slot int, receipt_id bigint, nonce bigint, index int, job_id bigint, run_lease bigint, timeout_s float8,
        callback_id text, wanted_id text, rules json, over text, nth int, gone boolean)) with ordinality
        as i(slot, receipt_id, nonce, index, job_id, run_lease, timeout_s, callback_id,
            wanted_id, rules, over, nth, gone, place)
    cross join lateral (
        select
            num_nulls(i.slot, i.receipt_id, i.nonce, i.index, i.job_id, i.run_lease) = 0
            and i.slot between 0 and 23 and i.index between 0 and 62) as n(named);
end
$$;
