from gateway.domain.lately import LatelyServed


def test_an_image_is_known_once_it_was_answered_for():
    lately = LatelyServed()
    assert "a" not in lately
    lately.add(["a"])
    assert "a" in lately


def test_the_image_not_used_for_longest_goes_first():
    lately = LatelyServed(most_images=2)
    lately.add(["a", "b"])
    lately.add(["a"])
    lately.add(["c"])
    assert ("a" in lately, "b" in lately, "c" in lately) == (True, False, True)
    assert len(lately) == 2


def test_a_restarted_engine_knows_nothing():
    lately = LatelyServed()
    lately.add(["a"])
    lately.forget()
    assert "a" not in lately
