-- pre
-- Callbacks: an attempt that waits for the outside world.

-- They stand in the attempt's lease row, which is its guard: whatever ends the attempt ends its callback with it.
-- callback_id: the one that counts, null: none is open. callback_no: how many there were. callback_until: when it times out.
-- callback_answered_at, callback_payload: the answer that the handler has yet to take. waiting_since: null while it runs.
-- A row without runtime is parked: no handler is alive, and only an answer, a cancel or the timeout ends it.
alter table {schema}.leases
    add column callback_id uuid,
    add column callback_no int not null default 0,
    add column callback_until timestamptz,
    add column callback_answered_at timestamptz,
    add column callback_payload json,
    add column waiting_since timestamptz,
    add constraint leases_callback_is_whole check ((callback_id is null) = (callback_until is null)),
    add constraint leases_parked_wait check (runtime_id is not null or state = 'running' or callback_id is not null),
    add constraint leases_answer_has_callback check (callback_answered_at is null or callback_id is not null);
-- State is in no index, so that beginning and ending a wait leaves the indexes alone.
alter table {schema}.leases set (fillfactor = 70);
create unique index leases_callback on {schema}.leases (callback_id) where callback_id is not null;
create index leases_callback_due on {schema}.leases (callback_until) where callback_id is not null;
