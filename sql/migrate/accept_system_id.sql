update {schema}.meta set system_identifier = (select system_identifier from pg_control_system());
-- A restored dump is no upgraded cluster: its transaction ids are another's.
select {schema}.check_cluster()
