-- with_progress(bodies) -> the same, each with the newest that its attempt has said of its progress: what settle_bodies keeps.
-- The rows of attempt_state go. Guard: run_lease of job and row. Locks: those rows. Errors: none.
create or replace function {schema}.with_progress(p_bodies {schema}.body[]) returns {schema}.body[]
language plpgsql volatile
set search_path = {schema}, pg_catalog, pg_temp
set jit = off
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
as $$
declare
    s record;
    b {schema}.body;
begin
    for s in
        delete from attempt_state as a
        using (
            select u.job_id, u.run_lease, u.place
            from unnest(p_bodies) with ordinality
                as u(job_id, queue, priority, kind, args, attempt, max_attempts, run_lease, run_at, created_at, metadata,
                    tags, ordering_key, errors, snoozes, deadline_s, unique_key, unique_states, progress, place)
        ) as n
        where a.job_id = n.job_id and a.run_lease = n.run_lease
        returning n.place, a.progress
    loop
        b := p_bodies[s.place];
        b.progress := s.progress;
        p_bodies[s.place] := b;
    end loop;
    return p_bodies;
end
$$;
