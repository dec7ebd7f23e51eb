-- keep_progress(json array) -> how many were written. Items as of finish with `progress`; those without, and those of attempts
-- that have ended, are passed over, and those of a job that another session is ending. Of a job named twice the last counts.
-- Arrow: none. Guard: the attempt is open. Locks: rows of attempt_state in order of their jobs, SKIP LOCKED: such a session may be a
-- handler's own transaction, which takes its time. Errors: class 22 where a value has another type than its column.
create or replace function {schema}.keep_progress(p_items json) returns int
language plpgsql volatile
set search_path = {schema}, pg_catalog, pg_temp
set jit = off
set enable_seqscan = off
as $$
declare
    v_count int;
begin
    with said as materialized (
        select distinct on (p.job_id) p.*
        from rows from (
            json_to_recordset(p_items) as (
                slot int, receipt_id bigint, nonce bigint, index int, job_id bigint, run_lease bigint, progress json)
        ) with ordinality as p(slot, receipt_id, nonce, index, job_id, run_lease, progress, place)
        where json_typeof(p.progress) = 'object'
        order by p.job_id, p.place desc
    ),
    held as materialized (
        select a.job_id
        from said as i
        join attempt_state as a on a.job_id = i.job_id
        order by a.job_id
        for update of a skip locked
    )
    insert into attempt_state as s (job_id, run_lease, slot, receipt_id, nonce, idx, progress)
    select i.job_id, i.run_lease, i.slot, i.receipt_id, i.nonce, i.index, i.progress
    from said as i
    where attempt_is_open(i.slot, i.receipt_id, i.nonce, i.index, i.job_id, i.run_lease)
        and (
            exists (select from held as h where h.job_id = i.job_id)
            or not exists (select from attempt_state as a where a.job_id = i.job_id))
    order by i.job_id
    on conflict (job_id) do update set
        run_lease = excluded.run_lease, slot = excluded.slot, receipt_id = excluded.receipt_id, nonce = excluded.nonce,
        idx = excluded.idx, progress = excluded.progress, written_at = clock_timestamp()
    where s.run_lease <= excluded.run_lease;
    get diagnostics v_count = row_count;
    return v_count;
end
$$;
