-- settle_bodies(bodies, codes, delays, reasons, causes; one entry per job) -> how many. Puts jobs that have just left their place where
-- the outcome sends them: the one place that knows it.
-- Arrow: 2, 3, 7 -> jobs_deferred; 6 -> jobs_returned; 4 -> jobs_dead, or jobs_finished where the queue keeps no dead letters;
-- 1, 5 -> jobs_finished. Bodies come as they are to be kept (attempts used, last lease, errors); a delay of null is the back-off.
-- Keys that the new state gives up are dropped, and an end takes its key where it is free (settle_keys); a state in which the
-- job goes on is the caller's to have taken the key for. What the attempt said of its progress is kept, but for one that completed.
-- causes: as of owe_outcomes, for attempts that ended without their handler.
-- Guard: the caller's, which took the job from its place in the same transaction. Locks: the new rows. Errors: none of its own.
--
-- A second job under an id that stands there already (only other software makes such) is dropped: an error here would keep
-- every attempt of the same call open for good.
create or replace function {schema}.settle_bodies(
    p_bodies {schema}.body[], p_codes int[], p_delays float8[], p_reasons text[], p_causes text[] default null
) returns int
language plpgsql volatile
set search_path = {schema}, pg_catalog, pg_temp
set jit = off
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
as $$
begin
    if exists (select from attempt_state) then
        p_bodies := with_progress(p_bodies);
    end if;
    perform settle_keys(array_agg(k.job_id), array_agg(k.unique_key), array_agg(k.unique_states::int), array_agg(k.state))
    from (
        select b.job_id, b.unique_key, b.unique_states, outcome_state(c.code) as state
        from unnest(p_bodies) with ordinality
            as b(job_id, queue, priority, kind, args, attempt, max_attempts, run_lease, run_at, created_at, metadata,
                tags, ordering_key, errors, snoozes, deadline_s, unique_key, unique_states, progress, place)
        join unnest(p_codes) with ordinality as c(code, place) using (place)
        where b.unique_key is not null
    ) as k
    having count(*) > 0;
    if 2 = any (p_codes) or 3 = any (p_codes) or 7 = any (p_codes) then
        insert into jobs_deferred (
            job_id, queue, priority, kind, args, attempt, max_attempts, run_lease, run_at, created_at, metadata, tags,
            ordering_key, errors, snoozes, deadline_s, unique_key, unique_states, progress, state)
        select
            b.job_id, b.queue, b.priority, b.kind, b.args, b.attempt, b.max_attempts, b.run_lease,
            due_after(coalesce(b.delay_s, retry_delay_s(b.attempt))), b.created_at, b.metadata, b.tags, b.ordering_key,
            b.errors, b.snoozes + (b.code = 3 and b.snoozes < 2147483647)::int, b.deadline_s, b.unique_key,
            b.unique_states, b.progress, outcome_state(b.code)
        from rows from (unnest(p_bodies), unnest(p_codes), unnest(p_delays))
            as b(job_id, queue, priority, kind, args, attempt, max_attempts, run_lease, run_at, created_at, metadata,
                tags, ordering_key, errors, snoozes, deadline_s, unique_key, unique_states, progress, code, delay_s)
        where b.code in (2, 3, 7)
        on conflict (job_id) do nothing;
    end if;
    if 6 = any (p_codes) then
        insert into jobs_returned (
            job_id, queue, priority, kind, args, attempt, max_attempts, run_lease, run_at, created_at, metadata, tags,
            ordering_key, errors, snoozes, deadline_s, unique_key, unique_states, progress)
        select
            b.job_id, b.queue, b.priority, b.kind, b.args, b.attempt, b.max_attempts, b.run_lease, b.run_at,
            b.created_at, b.metadata, b.tags, b.ordering_key, b.errors, b.snoozes, b.deadline_s, b.unique_key,
            b.unique_states, b.progress
        from rows from (unnest(p_bodies), unnest(p_codes))
            as b(job_id, queue, priority, kind, args, attempt, max_attempts, run_lease, run_at, created_at, metadata,
                tags, ordering_key, errors, snoozes, deadline_s, unique_key, unique_states, progress, code)
        where b.code = 6
        on conflict (job_id) do nothing;
    end if;
    if 1 = any (p_codes) or 4 = any (p_codes) or 5 = any (p_codes) then
        perform settle_ended(p_bodies, p_codes, p_reasons);
    end if;
    if array_to_string(p_causes, '') <> '' then
        perform owe_outcomes(p_bodies, p_codes, p_reasons, p_causes);
    end if;
    return cardinality(p_bodies);
end
$$;
