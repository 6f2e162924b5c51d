from benchmarks.bench import Bench, Options
from benchmarks.peers import PEERS
from benchmarks.scenarios import MEMORY, MIB, Scenario

TINY = Scenario(
    "tiny", "five small uploads at once", "text", 5, MEMORY, total=5, fresh=True, body_budget_bytes=256 * MIB
)


def test_a_fresh_scenario_has_a_process_of_its_own_and_its_memory(tmp_path):
    reported = {}
    peers = [PEERS["direct"], PEERS["bare-asgi"]]
    Bench(Options(rounds=1, seconds=0.1), tmp_path, print).run(
        [TINY], peers, lambda scenario, rounds: reported.update({scenario.name: rounds})
    )
    assert list(reported["tiny"]) == ["bare-asgi"]
    (figures,) = reported["tiny"]["bare-asgi"]
    assert figures["codes"] == {"200": 5}
    assert figures["peak_mb"] >= figures["idle_mb"] > 10
