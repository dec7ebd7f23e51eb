from __future__ import annotations

from typing import Any

from awa_pool.metrics import MOST_LABELS, OTHER, Exporter, Figures, Gauge


def scrape(figures: Figures, gauges: list[Gauge] | None = None) -> dict[str, float]:
    text = Exporter(figures, lambda: gauges or []).render()[0].decode()
    lines = [line for line in text.splitlines() if line and not line.startswith("#")]
    return {line.rpartition(" ")[0]: float(line.rpartition(" ")[2]) for line in lines}


def ended(**outcomes: int) -> dict[str, Any]:
    return {"ended": {"mail": dict(outcomes)}, "flushes": sum(outcomes.values()), "held_jobs": 5}


def test_counters_add_the_dead_to_the_living() -> None:
    figures = Figures()
    figures.take("finalizer", "a", ended(completed=3, retry=2))
    figures.take("finalizer", "a", ended(completed=4, retry=2))
    figures.bury("a")
    assert scrape(figures)['awa_pool_attempts_total{kind="mail",outcome="completed"}'] == 4
    figures.take("finalizer", "b", ended(completed=1))
    values = scrape(figures)
    assert values['awa_pool_attempts_total{kind="mail",outcome="completed"}'] == 5
    assert values['awa_pool_attempts_total{kind="mail",outcome="retry"}'] == 2
    assert values["awa_pool_flushes_total"] == 7
    assert figures.ended() == {"completed": 5, "retry": 2}


def test_counters_do_not_shrink_however_many_incarnations_come_and_go() -> None:
    figures = Figures()
    last = 0.0
    for number in range(2000):
        figures.take("finalizer", str(number), ended(completed=1))
        now = scrape(figures)["awa_pool_flushes_total"] if number % 200 == 0 else last
        assert now >= last
        last = now
        figures.bury(str(number))
    assert scrape(figures)["awa_pool_flushes_total"] == 2000
    assert len(figures._living) == 0


def test_gauges_come_from_the_living_alone() -> None:
    figures = Figures()
    figures.take("finalizer", "a", ended(completed=1))
    figures.bury("a")
    assert figures.newest("finalizer") == {}
    assert "held_jobs" not in figures.total("finalizer")


def test_labels_are_escaped_and_bounded() -> None:
    figures = Figures()
    kinds = {f"kind{n}": {"completed": 1} for n in range(MOST_LABELS + 100)}
    figures.take("finalizer", "a", {"ended": kinds | {'we"ird\n': {"completed": 1}}})
    values = {name: value for name, value in scrape(figures).items() if name.startswith("awa_pool_attempts")}
    assert len(values) == MOST_LABELS + 1
    assert sum(values.values()) == MOST_LABELS + 101
    assert values[f'awa_pool_attempts_total{{kind="{OTHER}",outcome="completed"}}'] == 101
    odd = scrape(Figures(), [Gauge(name="awa_pool_x", about="x", labels=("q",), values={('a"\nb',): 1.0})])
    assert list(odd)[-1] == 'awa_pool_x{q="a\\"\\nb"}'


def test_figures_of_another_shape_are_left_out() -> None:
    figures = Figures()
    figures.take("finalizer", "a", {"ended": 7, "flushes": "many", "stale": True})
    assert scrape(figures)["awa_pool_flushes_total"] == 0
