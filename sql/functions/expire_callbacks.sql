-- expire_callbacks(limit) -> (expired, next_due_s, failed, cancelled, jobs): jobs whose callback was not answered in time end their attempt: another try after the
-- back-off, or failed with the reason callback_timeout on the last one. next_due_s: seconds until the next one is due, null: none.
-- Of those expired `failed` and `cancelled` ended their jobs; `jobs`: up to five of them, those that failed first.
-- One whose handler has not begun to wait is left alone until it does, one whose unique key is about to change hands for this time.
-- Arrow: waiting_external -> retryable | failed; -> cancelled where another job holds the key that it would need.
-- Guard: the lease row, still waiting and not answered. Locks: lease rows, SKIP LOCKED; keys, as key_pass.
-- Errors: AW001, AW002, 40P01.
create or replace function {schema}.expire_callbacks(
    p_limit int, out expired int, out next_due_s float8, out failed int, out cancelled int, out jobs bigint[])
language plpgsql volatile
set search_path = {schema}, pg_catalog, pg_temp
set jit = off
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set enable_bitmapscan = off
set enable_sort = off  -- by the index of when they are due, also where the plan was made when there were few
as $$
declare
    v_now timestamptz := clock_timestamp();
    v leases;
    v_code int;
    v_others bigint[] := '{}';
    k record;
begin
    perform require_read_committed('expire_callbacks');
    if p_limit is null or p_limit < 1 then
        perform refuse_request('', 'limit: must be at least 1');
    end if;
    expired := 0;
    failed := 0;
    cancelled := 0;
    jobs := '{}';
    for v in
        select l.*
        from leases as l
        where l.callback_id is not null and l.callback_until <= v_now and l.state = 'waiting_external'
            and l.callback_answered_at is null
        order by l.callback_until
        limit p_limit
        for update skip locked
    loop
        v_code := case when v.attempt + 1 >= v.max_attempts then 4 else 7 end;
        select false as blocked, null::bigint as holder into k;
        if v_code = 7 then
            select m.blocked, m.holder into k from lease_keys(v, 'retryable') as m;
            continue when k.blocked and k.holder is null;
        end if;
        if k.blocked then
            perform leave_lease(v, 5, v.attempt + 1, v.metadata, null, duplicate_reason(k.holder), null);
        else
            perform leave_lease(
                v, v_code, v.attempt + 1, v.metadata,
                jsonb_build_object(
                    'error', format('callback #%s was not answered in time', v.callback_no),
                    'type', 'CallbackTimeout', 'callback', v.callback_no),
                'callback_timeout', 'expired_callback');
        end if;
        perform pg_notify('awa_pool', format('callback %s expired', v.callback_id));
        expired := expired + 1;
        if k.blocked then
            cancelled := cancelled + 1;
        elsif v_code = 4 then
            failed := failed + 1;
        end if;
        if v_code = 4 and cardinality(jobs) < 5 then
            jobs := jobs || v.job_id;
        elsif v_code = 7 and cardinality(v_others) < 5 then
            v_others := v_others || v.job_id;
        end if;
    end loop;
    jobs := (jobs || v_others)[1:5];
    select greatest(0, extract(epoch from l.callback_until - clock_timestamp())) into next_due_s
    from leases as l
    where l.callback_id is not null and l.state = 'waiting_external' and l.callback_answered_at is null
    order by l.callback_until
    limit 1;
end
$$;
