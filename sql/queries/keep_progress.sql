-- Keep what running attempts say of their progress -> how many were written.
select {schema}.keep_progress(%(items)s::json) as written
