"""Images have homes, which a server that comes or goes hardly moves; who has none, or a busy one, goes elsewhere."""

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from gateway.domain.routing import BUSY_UTILISATION, Standing, eligible, pick

NAMES = ("a", "b", "c", "d")
IMAGES = [b"%d" % number for number in range(4000)]


def home(image, standings):
    return standings[pick(standings, image, b"")].name


def homes(*names, images=IMAGES):
    standings = [Standing(name) for name in names]
    return [home(image, standings) for image in images]


class TestHomes:
    def test_images_are_spread_evenly(self):
        counts = Counter(homes(*NAMES))
        assert set(counts) == set(NAMES)
        assert all(abs(count - 1000) < 100 for count in counts.values())

    def test_the_order_of_the_servers_does_not_matter(self):
        assert homes("c", "a", "b") == homes("a", "b", "c")

    @given(st.lists(st.text(max_size=8), min_size=2, max_size=6, unique=True), st.data())
    def test_a_server_that_goes_moves_its_own_images_only(self, names, data):
        gone = data.draw(st.sampled_from(names))
        images = IMAGES[:50]
        left = homes(*(name for name in names if name != gone), images=images)
        for before, after in zip(homes(*names, images=images), left, strict=True):
            assert before in {after, gone}

    @given(st.lists(st.text(max_size=8), min_size=2, max_size=6, unique=True), st.data())
    def test_one_that_is_down_moves_its_own_images_only_and_gets_them_back(self, names, data):
        down = data.draw(st.sampled_from(names))
        all_up = [Standing(name) for name in names]
        standings = [Standing(name, is_healthy=name != down) for name in names]
        for image in IMAGES[:50]:
            before, meanwhile = home(image, all_up), home(image, standings)
            assert meanwhile != down
            assert before in {meanwhile, down}

    @given(st.floats(BUSY_UTILISATION, 3.0), st.floats(0.0, 3.0))
    def test_a_busy_home_is_passed_by_for_the_least_utilised(self, at_home, elsewhere):
        image = b"x"
        at = home(image, [Standing("a"), Standing("b")])
        other = "b" if at == "a" else "a"
        standings = [Standing(at, utilisation=at_home), Standing(other, utilisation=elsewhere)]
        assert home(image, standings) == (other if elsewhere < at_home else at)

    def test_who_was_promised_a_place_goes_where_it_is_kept_unless_its_images_home_has_room(self):
        image = b"x"
        at = home(image, [Standing("a"), Standing("b")])
        other = "b" if at == "a" else "a"
        kept = Standing(other, utilisation=2.5, keeps_place=True)
        assert home(image, [Standing(at, utilisation=2.0), kept]) == other
        assert home(None, [Standing(at, utilisation=0.0), kept]) == other
        assert home(image, [Standing(at, utilisation=0.1), kept]) == at
        assert home(None, [Standing(at), kept._replace(is_healthy=False)]) == at

    def test_below_that_it_stays_however_empty_the_others_are(self):
        image = b"x"
        at = home(image, [Standing("a"), Standing("b")])
        standings = [Standing(name, utilisation=0.7 if name == at else 0.0) for name in "ab"]
        assert home(image, standings) == at


class TestTexts:
    def picked(self, standings):
        return Counter(standings[pick(standings, None, b"gw-%d" % number)].name for number in range(1000))

    def test_they_go_to_the_least_utilised(self):
        standings = [Standing("a", utilisation=0.2), Standing("b", utilisation=0.1), Standing("c", utilisation=0.3)]
        assert self.picked(standings) == {"b": 1000}

    def test_equals_get_equal_shares(self):
        counts = self.picked([Standing("a"), Standing("b", utilisation=1.0), Standing("c")])
        assert set(counts) == {"a", "c"}
        assert abs(counts["a"] - 500) < 80


class TestEligible:
    def names(self, *standings):
        return [standings[index].name for index in eligible(standings)]

    def test_those_that_list_the_model(self):
        assert self.names(Standing("a", lists=False), Standing("b"), Standing("c", lists=None)) == ["b"]

    def test_one_that_does_not_know_the_model_is_no_way_out_for_one_that_is_down(self):
        assert self.names(Standing("a", lists=False), Standing("b", is_healthy=False)) == ["b"]

    def test_one_that_has_not_said_what_it_serves_before_those_that_do_not_serve_it(self):
        assert self.names(Standing("a", lists=False), Standing("b", lists=None, is_healthy=False)) == ["b"]

    def test_all_where_none_lists_it(self):
        assert self.names(Standing("a", lists=False), Standing("b", lists=False)) == ["a", "b"]

    def test_all_where_none_is_healthy(self):
        assert self.names(Standing("a", is_healthy=False), Standing("b", is_healthy=False)) == ["a", "b"]

    @given(
        st.lists(
            st.tuples(st.sampled_from([True, False, None]), st.booleans(), st.floats(0.0, 3.0)), min_size=1, max_size=5
        ),
        st.none() | st.binary(max_size=8),
    )
    def test_who_is_picked_was_eligible(self, facts, image):
        standings = [Standing(str(index), *each) for index, each in enumerate(facts)]
        assert pick(standings, image, b"id") in eligible(standings)
