-- Who works on this database; the watcher too.
select pid, application_name from pg_stat_activity where datname = current_database()
