-- Look for late rows in free and exhausted slots -> what was found.
select {schema}.sweep() as done
