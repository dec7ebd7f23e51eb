-- Every update and delete leaves one dead tuple; counted so, nothing that was cleaned up meanwhile is missed.
select coalesce(sum(n_tup_upd + n_tup_del), 0)::bigint
from pg_stat_user_tables where schemaname = 'awa_pool'
