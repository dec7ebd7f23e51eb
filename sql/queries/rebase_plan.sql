-- What a rebase would do, and why it is needed.
select reason, unclaimed, open_attempts, top_job, top_receipt, alive from {schema}.rebase_plan()
