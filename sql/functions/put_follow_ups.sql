-- put_follow_ups(follow_ups) -> (inserted, skipped): the follow-ups of an outcome that this transaction has written already, items of
-- enqueue_many in their order; skipped as of finish_with_follow_ups.
-- Arrow: (new) -> available | scheduled. Guard: the caller's. Locks: their unique keys in key order, for less than a second, as the
-- caller holds what the outcome was written to. Errors: AW001 naming a follow-up; 55P03; whatever an insert raises.
create or replace function {schema}.put_follow_ups(p_follow_ups json, out inserted int, out skipped json)
language plpgsql volatile
set search_path = {schema}, pg_catalog, pg_temp
set jit = off
set lock_timeout = '900ms'
as $$
declare
    k record;
begin
    if strpos(p_follow_ups::text, '"unique_') = 0 then
        inserted := put_jobs(p_follow_ups);
        return;
    end if;
    select * into k from hold_follow_up_keys(p_follow_ups);
    perform enqueue_many_timed(p_follow_ups, k.ids, k.fresh, true);
    inserted := (select count(*) from unnest(k.fresh) as n(fresh) where n.fresh);
    skipped := k.skipped;
end
$$;
