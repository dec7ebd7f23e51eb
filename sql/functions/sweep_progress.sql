-- sweep_progress(limit) -> how many rows of attempt_state went whose attempts have completed: that road is too busy to look.
-- Guard: the attempt is open no more. Locks: those rows, skip locked. Errors: none.
create or replace function {schema}.sweep_progress(p_limit int) returns int
language plpgsql volatile
set search_path = {schema}, pg_catalog, pg_temp
set jit = off
as $$
declare
    v_count int;
begin
    delete from attempt_state as a
    where a.job_id in (
        select s.job_id
        from attempt_state as s
        where s.written_at < clock_timestamp() - interval '30 s'
            and not attempt_is_open(s.slot, s.receipt_id, s.nonce, s.idx, s.job_id, s.run_lease)
        limit p_limit
        for update skip locked);
    get diagnostics v_count = row_count;
    return v_count;
end
$$;
