"""The shared page of a worker: what it is doing and what it has done, readable by others at any moment, also after
it was killed.

The worker alone writes. A page has a lane for sync handlers and one for async handlers; each lane is written by one
thread and holds

- a *journal*: one row `(slot, receipt_id, nonce, started_mask, completed_mask, ended_mask)` for each piece of a receipt
  of which something has started, kept at least until the finalizer has committed the results. A bit that is completed
  was completed; one that is ended ended otherwise, its result perhaps on the way; one that is started and neither was
  running; one of no kind was never started. This makes a crash exact.
- *running entries*: the attempt in each place of the lane, since when, in which phase, and until when it may run.

A mask is one aligned store. Rows of several words carry a version in their first and last word: the writer stores in
ascending order, a reader takes the last word first, so equal versions prove that nothing between them is torn (in the
order in which x86 shows stores; elsewhere a reader may, rarely, see a row of the past).
"""
