-- Raise AW003 when this schema was made in another cluster.
select {schema}.check_cluster()
