-- Drop superseded cursor rows -> what was done.
select {schema}.trim_cursors() as done
