-- hold_keys(arrays, one entry per attempt) -> (pos, key, job_id, fate, holder) of the attempts whose end changes who holds their
-- unique key. Comes before anything else is locked. fate: 'gives', the key is locked, to be dropped when the end has held;
-- 'took', it was taken, to be dropped when the end did not hold; 'duplicate', the job must not go on, as another (`holder`) has
-- its key; 'busy', the key is about to change hands elsewhere: the end is to be tried again.
-- Locks: as key_pass. Errors: as key_pass.
--
-- A job that ends keeps its end, whoever holds its key: only one that would wait or run again can be a duplicate.
create or replace function {schema}.hold_keys(
    p_slots int[], p_receipts bigint[], p_indexes int[], p_job_ids bigint[], p_leases bigint[], p_outcomes text[]
) returns table(pos int, unique_key bytea, job_id bigint, fate text, holder bigint)
language plpgsql volatile
set search_path = {schema}, pg_catalog, pg_temp
set jit = off
set plan_cache_mode = force_generic_plan
as $$
#variable_conflict use_column
declare
    v_pos int[];
    v_keys bytea[];
    v_jobs bigint[];
    v_takes boolean[];
    v_lasts boolean[];  -- whether the job has ended then
begin
    select array_agg(c.pos), array_agg(c.unique_key), array_agg(c.job_id), array_agg(c.after), array_agg(c.ends)
    into v_pos, v_keys, v_jobs, v_takes, v_lasts
    from (
        select distinct on (k.pos)
            k.pos, k.unique_key, k.job_id, states_hold(k.unique_states, 'running') as before,
            states_hold(k.unique_states, s.state) as after, s.state in ('completed', 'failed', 'cancelled') as ends
        from attempt_keys(p_slots, p_receipts, p_indexes, p_job_ids, p_leases) as k
        cross join lateral (
            select outcome_state(rule_outcome(p_outcomes[k.pos], k.attempt, k.max_attempts)) as state) as s
        order by k.pos
    ) as c
    where c.before <> c.after;
    if v_pos is null then
        return;
    end if;
    return query
    select
        v_pos[p.place], v_keys[p.place], v_jobs[p.place],
        case
            when p.verdict = 'busy' then 'busy'
            when p.verdict = 'locked' then 'gives'
            when p.verdict = 'taken' then 'took'
            else 'duplicate'
        end,
        p.holder
    from key_pass(v_keys, v_jobs, v_takes) as p
    where p.verdict in ('busy', 'locked', 'taken') or (p.verdict = 'held' and not v_lasts[p.place]);
end
$$;
