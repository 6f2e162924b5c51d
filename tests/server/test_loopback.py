"""Who is on this host."""

import pytest

from gateway.server.loopback import is_loopback


@pytest.mark.parametrize("host", ["127.0.0.1", "127.9.9.9", "::1", "::ffff:127.0.0.1"])
def test_these_are(host):
    assert is_loopback(host)


@pytest.mark.parametrize("host", ["10.0.0.1", "::ffff:10.0.0.1", "::", "0.0.0.0", "localhost", "", "fe80::1%lo"])
def test_these_are_not(host):
    assert not is_loopback(host)
