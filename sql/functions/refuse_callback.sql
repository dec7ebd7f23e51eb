-- refuse_callback(id) -> never returns. Errors: AW008, the same words whatever the reason: an id is all that a sender has to show;
-- but of one that is open, which only those are refused that want a job that waits, others, and the detail 'open'.
create or replace function {schema}.refuse_callback(p_callback text) returns void
language plpgsql volatile
set search_path = {schema}, pg_catalog, pg_temp
set jit = off
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
as $$
begin
    if exists (
        select from leases as l where l.callback_id = callback_uuid(p_callback) and l.callback_answered_at is null)
    then
        raise exception 'nobody waits yet for the callback %: its handler runs, so say it again later', left(p_callback, 36)
            using errcode = 'AW008', detail = 'open';
    end if;
    raise exception 'no callback waits for an answer under the id %', left(coalesce(p_callback, ''), 36)
        using errcode = 'AW008';
end
$$;
