-- Make a restored or copied database this cluster's own.
select reason, unclaimed, open_attempts, top_job, top_receipt, alive from {schema}.rebase(%(force)s)
