import resource

from gateway.ledger.host_memory import GIB, memory_limit_bytes, quarter_share


def test_the_machine_bounds_where_no_cgroup_file_exists(tmp_path):
    assert memory_limit_bytes((tmp_path / "missing",)) > 0


def test_a_cgroup_limit_below_the_machine_counts(tmp_path):
    limit = tmp_path / "memory.max"
    limit.write_text("268435456\n")
    assert memory_limit_bytes((limit,)) == 268_435_456


def test_a_cgroup_without_limit_changes_nothing(tmp_path):
    limit = tmp_path / "memory.max"
    limit.write_text("max\n")
    assert memory_limit_bytes((limit,)) == memory_limit_bytes(())


def test_an_address_space_limit_counts(monkeypatch):
    monkeypatch.setattr(resource, "getrlimit", lambda _: (123_456_789, resource.RLIM_INFINITY))
    assert memory_limit_bytes(()) == 123_456_789


def test_a_budget_is_a_quarter_but_never_above_four_gib():
    assert quarter_share(8 * GIB) == 2 * GIB
    assert quarter_share(1000 * GIB) == 4 * GIB
