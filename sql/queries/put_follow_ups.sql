-- Put the follow-ups of an outcome of this transaction in -> how many are new, and [kind, holder] of those skipped.
select p.inserted, p.skipped from {schema}.put_follow_ups(%(follow_ups)s::json) as p
