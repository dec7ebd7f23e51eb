-- move_ids_to_dead(ids, reason) -> a row per id, in the order given: status 'done', or 'refused' with what move_to_dead said of it.
-- Arrow, guard, locks: as move_to_dead, one job after the other. Errors: AW002.
create or replace function {schema}.move_ids_to_dead(p_ids bigint[], p_why text)
returns table(job_id bigint, status text, detail text)
language plpgsql volatile
set search_path = {schema}, pg_catalog, pg_temp
set jit = off
as $$
#variable_conflict use_column
declare
    v_id bigint;
begin
    perform require_read_committed('move_ids_to_dead');
    foreach v_id in array p_ids loop
        begin
            job_id := v_id;
            detail := move_to_dead(v_id, p_why);
            status := 'done';
        exception
            when sqlstate 'AW004' or sqlstate 'AW005' or lock_not_available then
                status := 'refused';
                detail := sqlerrm;
        end;
        return next;
    end loop;
end
$$;
