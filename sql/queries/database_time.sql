-- The database's own time.
select clock_timestamp()
