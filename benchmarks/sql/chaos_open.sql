-- Attempts claimed before a moment that have not ended.
select (select coalesce(sum(r.n - bit_count(r.closed::bit(64))), 0)
        from awa_pool.receipts as r where r.claimed_at < to_timestamp(%(before)s)
            and r.n > bit_count(r.closed::bit(64)))::bigint
    + (select count(*) from awa_pool.leases as l where l.claimed_at < to_timestamp(%(before)s))
