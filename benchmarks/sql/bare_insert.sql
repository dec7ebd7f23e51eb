-- The plainest bulk insert of a JSON document.
insert into bare_jobs (kind, args, queue)
select kind, args, queue from json_to_recordset(%(jobs)s::json) as item (kind text, args json, queue text)
