-- refuse_duplicate(job, holder) -> never returns. Errors: AW007 naming the holder of the job's unique key, its id as detail; 55P03
-- when the holder is null: another session's transaction is about to decide.
create or replace function {schema}.refuse_duplicate(p_job_id bigint, p_holder bigint) returns void
language plpgsql volatile
set search_path = {schema}, pg_catalog, pg_temp
as $$
begin
    if p_holder is null then
        raise exception 'the unique key of job % is about to change hands: try again', p_job_id
            using errcode = 'lock_not_available';
    end if;
    raise exception 'job % holds the unique key of job %', p_holder, p_job_id using errcode = 'AW007', detail = p_holder;
end
$$;
