-- read_ends(json array) -> a row per item, fault = true where a part of the attempt's identity or its outcome is missing or out
-- of range. Guard: none. Locks: none. Errors: class 22 where a value has another type than its column.
create or replace function {schema}.read_ends(p_items json)
returns table(
    item int, fault boolean, slot int, receipt_id bigint, nonce bigint, idx int, job_id bigint, run_lease bigint,
    outcome text, delay_s float8, error jsonb, reason text)
language sql stable
set search_path = {schema}, pg_catalog, pg_temp
as $$
    select
        (e.number - 1)::int,
        not coalesce(
            e.slot between 0 and 23 and e.receipt_id is not null and e.nonce is not null and e.index between 0 and 62
            and e.job_id is not null and e.run_lease is not null and rule_outcome(e.outcome, 0, 1) is not null
            and (e.outcome <> 'snooze' or e.delay_s is not null),
            false),
        e.slot, e.receipt_id, e.nonce, e.index, e.job_id, e.run_lease, e.outcome, e.delay_s, e.error, e.reason
    from rows from (
        json_to_recordset(p_items) as (
            slot int, receipt_id bigint, nonce bigint, index int, job_id bigint, run_lease bigint, outcome text,
            delay_s float8, error jsonb, reason text)
    ) with ordinality
        as e(slot, receipt_id, nonce, index, job_id, run_lease, outcome, delay_s, error, reason, number)
$$;
