from gateway.domain.priority import Priority


def test_classes_in_the_order_in_which_they_are_served():
    assert [each.label for each in sorted(Priority)] == ["critical", "interactive", "default", "batch"]
