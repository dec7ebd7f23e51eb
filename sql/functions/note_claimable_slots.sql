-- note_claimable_slots() -> a trigger of slots: writes down which of them claims look into, where that has changed, and forgets
-- what stood there before. Those who change slots hold the ring, so rows come one after the other. Locks: the row it
-- replaces. Errors: none.
create or replace function {schema}.note_claimable_slots() returns trigger
language plpgsql volatile
set search_path = {schema}, pg_catalog, pg_temp
as $$
declare
    v_seq bigint;
begin
    insert into claimable_slots (seq, slots, generations, sealed_at)
    select coalesce(l.seq, 0) + 1, s.slots, s.generations, s.sealed_at
      from (select array_agg(t.slot::int order by t.generation) as slots,
                   array_agg(t.generation order by t.generation) as generations,
                   array_agg(t.sealed_at order by t.generation) as sealed_at
              from slots as t where t.state in ('current', 'sealed')) as s
      left join (select c.* from claimable_slots as c order by c.seq desc limit 1) as l on true
     where (s.slots, s.generations, s.sealed_at) is distinct from (l.slots, l.generations, l.sealed_at)
    returning seq into v_seq;
    delete from claimable_slots as c where c.seq < v_seq;
    return null;
end
$$;
