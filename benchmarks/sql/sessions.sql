-- Sessions of our pools in this database.
select count(*) from pg_stat_activity
where datname = current_database() and application_name like 'awa-pool %%' and application_name <> %(watcher)s
