-- Attempts that ended in any other way than completed, given back unstarted, or moved.
select coalesce(sum(bit_count(mask::bit(64))), 0)::bigint from awa_pool.completions where outcome not in (1, 6, 8)
