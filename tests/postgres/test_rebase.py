"""A database that was restored or copied into another cluster: refused, rebased, and nothing lost or doubled by it."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest
from clusters_rig import burn_xids, dump, next_xid, restore
from general_rig import Queue
from ring_rig import call, session, until, value
from servers import Server, new_server, remove_server

from awa_pool import Client
from awa_pool.cli.entry import main
from awa_pool.errors import SchemaMismatch, TransitionRefused
from awa_pool.store.connection import connect
from awa_pool.store.migrate import migrate
from awa_pool.store.rebase import plan, rebase

LIVE = ("available", "running", "scheduled", "retryable")


@pytest.fixture(scope="module")
def fresh(pg_server: Server) -> Iterator[Server]:
    """Another cluster, whose transaction ids are lower than those of the first."""
    made = new_server(pg_server.bin_dir, "fsync=off")
    yield made
    remove_server(made)


def states(q: Queue) -> dict[int, str]:
    """Every job and its state."""
    return dict(q.rows("select id, state from awa_pool.jobs"))


def busy_world(q: Queue) -> dict[str, list[int]]:
    """Jobs in every place that a dump can find them in, over several slots; returns some of their ids by what they are."""
    burn_xids(q.dsn)
    with psycopg.connect(q.dsn) as late:  # a producer that commits long after others were claimed
        (slow,) = late.execute("select awa_pool.enqueue('k', '{}')").fetchone() or (0,)
        first = q.fill(70)
        attempts = q.claim(60)
        q.finish(*(a.ended("completed") for a in attempts[:20]))
        q.finish(*(a.ended("retry", delay_s=0.0, error={"error": "x", "type": "E"}) for a in attempts[20:30]))
        q.finish(*(a.ended("return") for a in attempts[30:40]))
        assert q.promote()[0] == 10  # so the same jobs stand a second time in their slot
        again = q.claim(5)
        q.finish(*(a.ended("completed") for a in again[:2]))
        q.rows("select awa_pool.cancel(%s)", first[65])
        other = []
        for priority in (1, 3, 4):  # each has a cursor of its own
            q.enqueue(queue="other", priority=priority)
            other += [a.job_id for a in q.claim(1, "other")]
            q.enqueue(priority=priority)
        q.rows("select awa_pool.rotate(0, null)")
        q.move(attempts[50])
        second = q.fill(10)
        late.commit()
    q.rows("select awa_pool.retry(%s)", first[65])
    q.enqueue(run_at="2100-01-01")
    return {"open": [a.job_id for a in attempts[40:60]], "late": [slow], "new": second, "other": other}


class Backup:
    """A dump, what its jobs were, and as many databases restored from it as wanted."""

    def __init__(
        self, source: Server, target: Server, path: Path, states: dict[int, str], groups: dict[str, list[int]]
    ) -> None:
        self.states, self.groups = states, groups
        self._source = source
        self._target = target
        self._first = restore(target, path)
        self._copies = 0

    def restored(self) -> str:
        """A database that has just been restored (copied from the one that was: that is much faster)."""
        self._copies += 1
        name = f"copy_{self._copies}"
        first = psycopg.conninfo.conninfo_to_dict(self._first)["dbname"]
        self._target.execute(f"create database {name} template {first}")
        return self._target.dsn(name)

    def copied_at_home(self) -> str:
        """A copy of the source in its own cluster."""
        self._copies += 1
        self._source.execute(f"create database copy_{self._copies} template rebase_source")
        return self._source.dsn(f"copy_{self._copies}")


@pytest.fixture(scope="module")
def backup(
    pg_server: Server, _template: str, fresh: Server, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Backup]:
    pg_server.execute(f"create database rebase_source template {_template}")
    dsn = pg_server.dsn("rebase_source")
    with Queue(dsn) as q:
        groups = busy_world(q)
        before = states(q)
    yield Backup(
        pg_server, fresh, dump(pg_server, dsn, tmp_path_factory.mktemp("dump") / "backup"), before, groups
    )
    pg_server.execute("drop database rebase_source with (force)")


def test_a_restored_database_is_refused_everywhere_until_it_is_rebased(backup: Backup) -> None:
    dsn = backup.restored()
    with pytest.raises(SchemaMismatch, match="awa-pool rebase --schema awa_pool"):
        connect(dsn)
    with pytest.raises(SchemaMismatch, match="awa-pool rebase"):
        migrate(dsn)
    with pytest.raises(SchemaMismatch, match="awa-pool rebase"):
        migrate(dsn, accept_system_id=True)  # it is no upgraded cluster: its cursors come from the future
    with pytest.raises(SchemaMismatch, match="awa-pool rebase"), Client(dsn) as client:
        client.insert({}, kind="k")
    with Queue(dsn) as q:  # as a connection through a pooler would find it
        statements = [
            "select * from awa_pool.claim(array['default'], array[500], 500, 1 << 26, 5, gen_random_uuid(), 1, false)",
            "select awa_pool.heartbeat(gen_random_uuid(), null)",
            "select awa_pool.register_runtime(gen_random_uuid(), 'h', 1, null)",
            "select awa_pool.lead('maintenance', gen_random_uuid(), 10)",
            "select awa_pool.prune(0, 0)",
            "select awa_pool.exhaust_slots()",
            "select awa_pool.move_open_attempts(100, 0)",
        ]
        for statement in statements:
            with pytest.raises(psycopg.Error, match="awa-pool rebase") as refused:
                q.rows(statement)
            assert refused.value.sqlstate == "AW003"


def test_after_a_rebase_each_job_is_what_it_was_and_is_claimed_once(backup: Backup) -> None:
    before, groups, dsn = backup.states, backup.groups, backup.restored()
    with Queue(dsn) as q:
        added = q.enqueue()  # by software that does not look: under a low transaction id
    planned = plan(dsn)
    done = rebase(dsn)
    assert done[1:5] == planned[1:5]
    assert "another PostgreSQL cluster" in str(done.reason)
    with Queue(dsn) as q:
        after = states(q)
        assert after == before | {added: "available"}
        assert done.unclaimed == sum(s == "available" for s in after.values()) - value(
            q.conn, "select count(*) from awa_pool.jobs_returned"
        )
        assert done.open_attempts == sum(s == "running" for s in after.values())
        fresh_id = q.enqueue()
        assert fresh_id > max(after)
        claimed = [a.job_id for a in q.claim(500)]
        available = {i for i, s in after.items() if s == "available"} | {fresh_id}
        assert (set(claimed), len(claimed)) == (available, len(available))
        assert set(groups["late"] + groups["new"]) <= set(claimed)
        assert q.claim(500) == q.claim(500, "other") == []
        assert {after[i] for i in groups["other"]} == {"running"}


def test_what_was_running_before_is_rescued_by_rule_and_may_still_end_first(backup: Backup) -> None:
    before, groups, dsn = backup.states, backup.groups, backup.restored()
    rebase(dsn)
    running = {i for i, s in before.items() if s == "running"}
    with Queue(dsn) as q:
        (receipt, slot, nonce, bits) = q.rows(
            "select receipt_id, slot, nonce, ~closed & (9223372036854775807 >> (63 - n)) from awa_pool.receipts"
            " where closed <> (9223372036854775807 >> (63 - n)) order by receipt_id limit 1"
        )[0]
        one = bits & -bits  # the result of a pool that outlived the change comes in
        job = q.one(
            "select job_ids[%s] from awa_pool.receipts where receipt_id = %s", one.bit_length(), receipt
        )
        assert q.rows("select done from awa_pool.complete(array[%s], array[%s], array[%s], array[%s::bigint])",
                      slot, receipt, nonce, one) == [(one,)]  # fmt: skip
        q.rows("update awa_pool.receipts set claimed_at = now() - interval '1 h'")
        q.rows("update awa_pool.leases set claimed_at = now() - interval '1 h'")
        q.rows("select * from awa_pool.rescue_stale(30, 1000)")
        assert q.state(job) == "completed"
        assert {q.state(i) for i in running - {job}} == {"retryable"}
        assert len(running) > len(groups["open"])
        bodies = q.one(
            "select count(distinct job_id) from awa_pool.jobs_deferred where job_id = any(%s)", list(running)
        )
        assert bodies == len(running) - 1


def test_the_ring_turns_again_after_a_rebase(backup: Backup) -> None:
    dsn = backup.restored()
    rebase(dsn)
    with Queue(dsn) as q, session(dsn) as conn:
        q.finish(*(a.ended("completed") for a in q.claim(500)))
        q.rows("update awa_pool.receipts set claimed_at = now() - interval '1 h'")
        q.rows("select * from awa_pool.rescue_stale(30, 1000)")
        call(conn, "rotate(0, null)")
        call(conn, "sweep()")

        def pruned() -> bool:
            call(conn, "exhaust_slots()")
            call(conn, "prune(0, 0)")
            return bool(value(conn, "select count(*) = 23 from awa_pool.slots where state = 'free'"))

        until(pruned, "every slot but the current one is free")
        assert value(conn, "select count(*) from awa_pool.jobs_ready") == 0


def test_a_second_rebase_finds_nothing_to_do(backup: Backup) -> None:
    dsn = backup.restored()
    rebase(dsn)
    with Queue(dsn) as q:
        taken = {a.job_id for a in q.claim(3)}
        before = states(q)
        assert rebase(dsn).reason is None
        assert states(q) == before
        rebase(dsn, force=True)
        assert states(q) == before
        rest = [a.job_id for a in q.claim(500)]
        assert (len(rest), set(rest) & taken) == (len(set(rest)), set())


def test_sequences_that_were_not_carried_are_noticed_and_set_beyond_everything(
    backup: Backup,
) -> None:
    before, dsn = backup.states, backup.copied_at_home()
    with Queue(dsn) as q:
        for name in ("job_id_seq", "receipt_id_seq", "cursor_seq", "window_id_seq", "yielding_seq"):
            q.rows(f"alter sequence awa_pool.{name} restart")
        q.rows("update awa_pool.receipts set yields = 1")  # some hold keys that they give up
        q.rows("select setval('awa_pool.current_slot', 0, false)")
        with pytest.raises(psycopg.Error, match=r"sequences that stand behind.*awa-pool rebase"):
            q.rows("select awa_pool.lead('maintenance', gen_random_uuid(), 10)")
        assert "sequences" in str(plan(dsn).reason)
        rebase(dsn)
        for name, query in (
            ("job_id_seq", "select max(id) from awa_pool.jobs"),
            ("receipt_id_seq", "select max(receipt_id) from awa_pool.receipts"),
            ("cursor_seq", "select max(seq) from awa_pool.cursors"),
            ("window_id_seq", "select max(window_id) from awa_pool.cursor_windows"),
        ):
            assert q.one(f"select last_value from awa_pool.{name}") >= q.one(query)
        assert q.one("select is_called from awa_pool.yielding_seq")
        assert q.one("select last_value from awa_pool.current_slot") == q.one(
            "select slot from awa_pool.slots where state = 'current'"
        )
        assert states(q) == before
        claimed = [a.job_id for a in q.claim(500)]
        assert len(set(claimed)) == len(claimed) == sum(s == "available" for s in before.values())


def test_a_clone_of_the_same_identifier_is_caught_by_the_claim_itself(backup: Backup) -> None:
    before, dsn = backup.states, backup.restored()
    with Queue(dsn) as q:
        q.rows(
            "update awa_pool.meta set system_identifier = (select system_identifier from pg_control_system())"
        )
        beyond = q.one("select max(txid)::text::bigint from awa_pool.jobs_ready")
        assert next_xid(dsn) < beyond
        with pytest.raises(psycopg.Error, match="knows transactions"):
            q.rows("select awa_pool.lead('maintenance', gen_random_uuid(), 10)")
        with pytest.raises(psycopg.Error, match="cursor from the future.*awa-pool rebase"):
            q.claim(500)
        q.rows("delete from awa_pool.cursors")  # now no cursor can tell: the rows themselves do
        q.rows("delete from awa_pool.cursor_windows")
        for housekeeping in ("exhaust_slots()", "prune(0, 0)"):
            with pytest.raises(psycopg.Error, match="awa-pool rebase"):
                q.rows(f"select awa_pool.{housekeeping}")
        assert plan(dsn).reason is not None
        rebase(dsn)
        assert plan(dsn).reason is None
        assert sum(s == "available" for s in states(q).values()) <= sum(s in LIVE for s in before.values())


def test_a_lane_that_has_lost_what_its_claims_wrote_stops_no_other_and_a_rebase_mends_it(dsn: str) -> None:
    with Queue(dsn) as q, Queue(dsn, "other") as other:
        q.fill(5)
        assert len(q.claim(2)) == 2
        q.rows("delete from awa_pool.cursor_windows")
        other.fill(3)
        assert len(other.claim(10)) == 3
        assert q.claim(10) == []  # nobody can tell by cursors which these are
        for housekeeping in ("exhaust_slots()", "prune(0, 0)"):
            with pytest.raises(
                psycopg.Error, match="queue default has lost what .* `awa-pool rebase`"
            ) as told:
                q.rows(f"select awa_pool.{housekeeping}")
            assert told.value.sqlstate == "XX001"
        assert q.rows("select awa_pool.sweep()") and "lost" in str(plan(dsn).reason)
        rebase(dsn)
        assert plan(dsn).reason is None
        assert len(q.claim(10)) == 3


def test_a_rebase_is_refused_while_a_pool_works_on_the_database(dsn: str) -> None:
    with Queue(dsn) as q:
        q.fill(5)
        q.claim(2)
        q.rows("select awa_pool.register_runtime(%s, 'build-7', 4711, null)", uuid.uuid4())
        q.rows("select setval('awa_pool.window_id_seq', 1, false)")
        with pytest.raises(TransitionRefused, match="pid 4711 on build-7"):
            rebase(dsn)
        assert q.one("select count(*) from awa_pool.cursor_windows") == 1
        assert rebase(dsn, force=True).alive == ["pid 4711 on build-7"]
        assert len(q.claim(10)) == 3


def test_the_command_shows_the_plan_and_changes_nothing_without_yes(
    backup: Backup, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWA_POOL_DSN", backup.restored())
    assert main(["rebase"]) == 0
    shown = capsys.readouterr().out
    assert (
        "another PostgreSQL cluster" in shown
        and "--yes does it" in shown
        and "would be entered anew" in shown
    )
    assert main(["status"]) == 2
    assert "awa-pool rebase" in capsys.readouterr().err
    assert main(["rebase", "--yes"]) == 0
    assert "would" not in capsys.readouterr().out
    assert main(["rebase"]) == 0
    assert "nothing to do" in capsys.readouterr().out
    assert main(["status"]) == 0
