-- renew_waiters(queues) -> nothing: keep the 10 s lease of those who wait for these queues, written only when it has
-- under 5 s left. Locks: the rows, in order of their names. Errors: none.
create or replace function {schema}.renew_waiters(p_queues text[]) returns void
language plpgsql volatile
as $$
begin
    insert into {schema}.queue_waiters as w (queue, until)
    select q.queue, clock_timestamp() + interval '10 s'
      from (select distinct u.queue collate "C" as queue from unnest(p_queues) as u (queue)) as q
      left join {schema}.queue_waiters as w on w.queue = q.queue
     where w.until is null or w.until < clock_timestamp() + interval '5 s'
     order by q.queue
        on conflict (queue) do update set until = excluded.until where w.until < excluded.until;
end
$$;
