-- The slots of the ring that are not free, and what holds them back.
select slot, state, state_s, bytes, held_by, told, held_s from {schema}.ring_status()
