-- claim_returned(queue, limit, max_bytes, chunk, runtime, request) -> a row per receipt, as claim_lane.
-- Arrow: available (given back) -> running. The bodies move into the current slot under a negative priority,
-- which no cursor reads, with a receipt over them. Locks: the rows of jobs_returned, SKIP LOCKED. Errors: none.
create or replace function {schema}.claim_returned(
    p_queue text, p_limit int, p_max_bytes bigint, p_chunk int, p_runtime uuid, p_request bigint
) returns table (
    slot int, receipt_id bigint, nonce bigint, priority int, job_ids bigint[], kinds text[], bodies text[],
    bytes bigint)
language plpgsql volatile
as $$
#variable_conflict use_column
declare
    v_txid xid8 := pg_current_xact_id();  -- before the slot is read: see jobs_ready
    v_slot smallint := pg_sequence_last_value('{schema_text}.current_slot'::regclass);
begin
    return query
    with candidate as (
        select j.job_id, j.priority, pg_column_size(j.args) as size
          from {schema}.jobs_returned as j
         where j.queue = p_queue and j.priority between 1 and 4
         order by j.priority, j.job_id limit p_limit
           for update skip locked
    ), fitting as (
        select f.job_id from (
            select c.job_id, sum(c.size) over w as size, row_number() over w as place from candidate as c
            window w as (order by c.priority, c.job_id)) as f
         where f.place = 1 or f.size <= p_max_bytes
    ), gone as (
        delete from {schema}.jobs_returned as j using fitting as f where j.job_id = f.job_id returning j.*
    ), moved as (
        insert into {schema}.jobs_ready (job_id, queue, priority, kind, args, attempt, max_attempts, run_lease,
                run_at, created_at, metadata, tags, ordering_key, errors, snoozes, deadline_s, unique_key,
                unique_states, progress, txid, slot)
        select g.job_id, g.queue, -g.priority, g.kind, g.args, g.attempt, g.max_attempts, g.run_lease,
                g.run_at, g.created_at, g.metadata, g.tags, g.ordering_key, g.errors, g.snoozes, g.deadline_s,
                g.unique_key, g.unique_states, g.progress, v_txid, v_slot
          from gone as g
    ), placed as (
        select o.*, (o.rank - 1) / p_chunk as piece, (o.rank - 1) % p_chunk + 1 as place
          from (select g.*, row_number() over (partition by g.priority order by g.job_id) as rank from gone as g) as o
    ), piece as (
        select nextval('{schema_text}.receipt_id_seq') as receipt_id,
               hashtextextended(gen_random_uuid()::text, 0) as nonce, p.priority, p.piece,
               array_agg(p.job_id order by p.job_id) as ids, array_agg(p.kind order by p.job_id) as kinds,
               array_agg(p.run_lease + 1 order by p.job_id) as leases, count(*)::int as n,
               sum(pg_column_size(p.args)) as size,
               array_agg(row(p.place, p.job_id, p.unique_key, p.unique_states)::{schema}.keyed_job)
                   filter (where p.unique_key is not null) as keyed,
               array_agg(concat('[', p.job_id, ',', to_json(p.kind), ',', p.args, ',', p.attempt + 1, ',',
                    p.run_lease + 1, ',', p.max_attempts, ',',
                    case when p.snoozes = 0
                          and num_nonnulls(p.metadata, p.tags, p.deadline_s, p.progress, p.ordering_key) = 0
                         then 'null'
                         else {schema}.body_extra(p.metadata, p.tags, p.snoozes, p.deadline_s, p.progress,
                                                  p.ordering_key) end, ']') order by p.job_id) as bodies
          from placed as p group by p.priority, p.piece
    ), written as (
        insert into {schema}.receipts (slot, receipt_id, nonce, queue, priority, from_txid, from_id, to_txid, to_id,
                job_ids, leases, n, runtime_id, request_id, keyed, yields)
        select v_slot, p.receipt_id, p.nonce, p_queue, -p.priority, v_txid, p.ids[1], v_txid, p.ids[p.n],
               p.ids, p.leases, p.n, p_runtime, p_request,
               case when p.keyed is not null then {schema}.key_bits(p.keyed, 1, p.n) end,
               case when p.keyed is not null then {schema}.yield_keys(p.keyed, 1, p.n, true) end
          from piece as p
    )
    select v_slot::int, p.receipt_id, p.nonce, p.priority::int, p.ids, p.kinds, p.bodies,
           (sum(p.size) over ())::bigint
      from piece as p order by p.priority, p.piece;
end
$$;
