-- Answer a callback, alone in its transaction: the job goes on -> job, number of the callback, state.
call {schema}.resume_and_tell(%(callback)s::text, %(payload)s::json, null, null, null)
