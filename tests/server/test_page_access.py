"""Who may see the status page, decided from a connection and its headers alone."""

import pytest

from gateway.domain.errors import GatewayError
from gateway.server.page_access import Audience, PageAccess

HERE, ELSEWHERE = ("127.0.0.1", 50_000), ("203.0.113.9", 50_000)
LOOPBACK = PageAccess()
EVERYONE = PageAccess(Audience.EVERYONE, frozenset({"gateway.example"}))


def refusal(access, client=HERE, *, host="localhost:8080", is_data=True, **headers):
    """Status and sentence of the refusal; None where there is none. Names have underscores for dashes."""
    pairs = [(name.replace("_", "-").encode(), value.encode()) for name, value in ({"host": host} | headers).items()]
    scope = {"path": "/gateway/state", "client": client, "headers": [pair for pair in pairs if pair[1]]}
    try:
        access.refuse(scope, is_data=is_data)
    except GatewayError as error:
        return error.status, error.message
    return None


class TestWhoseConnection:
    @pytest.mark.parametrize("address", ["127.0.0.1", "127.9.9.9", "::1", "::ffff:127.0.0.1"])
    def test_of_this_machine(self, address):
        assert refusal(LOOPBACK, (address, 1)) is None

    @pytest.mark.parametrize("address", ["203.0.113.9", "10.0.0.1", "::ffff:10.0.0.1", "fe80::1%eth0", "", "localhost"])
    def test_of_another(self, address):
        status, message = refusal(LOOPBACK, (address, 1))
        assert (status, "on this machine alone" in message) == (403, True)

    def test_of_nobody_knows_whom(self):
        assert refusal(LOOPBACK, None)[0] == 403

    @pytest.mark.parametrize("name", ["x_forwarded_for", "forwarded", "via", "x_real_ip", "x_forwarded_host"])
    def test_what_a_proxy_says_never_opens_it_and_may_close_it(self, name):
        assert refusal(LOOPBACK, ELSEWHERE, **{name: "127.0.0.1"})[0] == 403
        status, message = refusal(LOOPBACK, HERE, **{name: "127.0.0.1"})
        assert (status, name.replace("_", "-") in message) == (403, True)

    def test_everyone_may_come_from_anywhere_and_through_proxies(self):
        assert refusal(EVERYONE, ELSEWHERE, host="gateway.example", x_forwarded_for="198.51.100.1") is None

    def test_for_nobody_there_is_no_page(self):
        assert refusal(PageAccess(Audience.NOBODY)) == (404, "There is no route `/gateway/state` here.")


class TestByWhichName:
    @pytest.mark.parametrize("host", ["localhost", "LOCALHOST:80", "127.0.0.1:8080", "[::1]:8080", "127.0.0.7"])
    def test_names_of_this_machine(self, host):
        assert refusal(LOOPBACK, host=host) is None

    @pytest.mark.parametrize(
        "host",
        [
            "evil.example",
            "10.0.0.1",
            "[2001:db8::1]",
            "localhost.evil.example",
            "localhost:80@evil.example",
            "a b",
            "[x]",
        ],
    )
    def test_all_others_could_be_a_foreign_page_that_points_here(self, host):
        status, message = refusal(LOOPBACK, host=host)
        assert (status, "status_page.hosts" in message) == (403, True)

    def test_none_and_two_are_no_name(self):
        assert refusal(LOOPBACK, host="")[0] == 403
        scope = {"path": "/", "client": HERE, "headers": [(b"host", b"localhost"), (b"host", b"localhost")]}
        with pytest.raises(GatewayError, match="does not answer to the name ''"):
            LOOPBACK.refuse(scope, is_data=False)

    @pytest.mark.parametrize("host", ["10.0.0.1:8080", "[2001:db8::1]:8080", "localhost", "Gateway.Example:443"])
    def test_everyone_may_use_addresses_and_the_operators_names(self, host):
        assert refusal(EVERYONE, ELSEWHERE, host=host) is None

    def test_everyone_may_use_no_other_name(self):
        assert refusal(EVERYONE, ELSEWHERE, host="evil.example")[0] == 403

    def test_a_name_of_the_operator_opens_nothing_to_others(self):
        access = PageAccess(hosts=frozenset({"gateway.example"}))
        assert refusal(access, host="gateway.example") is None
        assert refusal(access, ELSEWHERE, host="gateway.example")[0] == 403


class TestFromWhichPage:
    @pytest.mark.parametrize("origin", ["http://localhost:8080", "https://localhost:8080", "HTTP://LOCALHOST:8080", ""])
    def test_its_own(self, origin):
        assert refusal(LOOPBACK, origin=origin, sec_fetch_site="same-origin") is None

    @pytest.mark.parametrize("origin", ["null", "http://localhost", "http://localhost:9999", "https://evil.example"])
    def test_not_one_of_another_site(self, origin):
        assert refusal(LOOPBACK, origin=origin)[0] == 403
        assert refusal(LOOPBACK, origin=origin, is_data=False) is None

    @pytest.mark.parametrize(("site", "is_open"), [("none", True), ("same-site", False), ("cross-site", False)])
    def test_as_the_browser_says(self, site, is_open):
        assert (refusal(LOOPBACK, sec_fetch_site=site) is None) == is_open
        assert (refusal(EVERYONE, ELSEWHERE, sec_fetch_site=site) is None) == is_open
