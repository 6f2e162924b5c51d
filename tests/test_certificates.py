"""From files to contexts: what mistakes are called, and what is looked at again."""

import asyncio
import ssl

import pytest
import trustme

from gateway.certificates import CertificateError, certificates_of
from tests.support.authorities import HOST, authority_file, pair
from tests.support.live_gateway import settings_of

HTTPS = "https://127.0.0.1:8443/"


@pytest.fixture(scope="module")
def authority():
    return trustme.CA()


def server(**tls):
    return certificates_of(settings_of("http://127.0.0.1:8000", server={"tls": tls}))


def upstream(**tls):
    return certificates_of(settings_of(HTTPS, upstream={"tls": tls}))


def test_without_settings_there_is_none():
    certificates = certificates_of(settings_of("http://127.0.0.1:8000"))
    assert (certificates.server, certificates.upstreams) == (None, {})


async def test_where_there_is_nothing_to_look_at_nobody_looks():
    async def never(_seconds):
        raise AssertionError

    await certificates_of(settings_of("http://127.0.0.1:8000")).renew_for_ever(never)


async def test_files_are_looked_at_every_few_seconds(authority, tmp_path):
    own = pair(tmp_path, authority.issue_cert(HOST))
    certificates = server(**own.as_settings())
    looked, slept = [], []
    certificates.look = lambda: looked.append(len(slept))

    async def sleep(seconds):
        slept.append(seconds)
        if len(slept) == 3:
            raise asyncio.CancelledError

    with pytest.raises(asyncio.CancelledError):
        await certificates.renew_for_ever(sleep)
    assert (slept, looked) == ([5.0, 5.0, 5.0], [1, 2])


def test_a_server_without_an_authority_of_its_own_is_checked_by_the_system_s():
    (tls,) = upstream().upstreams.values()
    assert tls.context.verify_mode is ssl.CERT_REQUIRED
    assert tls.context.check_hostname
    assert tls.context.minimum_version is ssl.TLSVersion.TLSv1_2
    assert (tls.server_name, tls.is_anonymous) == (None, True)


def test_one_of_several_may_have_its_own(authority, tmp_path):
    own = pair(tmp_path, authority.issue_cert("gateway"))
    settings = settings_of("http://unused").model_copy(update={"upstreams": ()})
    settings = type(settings).model_validate({
        "upstreams": [
            {"url": "http://10.0.0.1:8000"},
            {"url": "https://10.0.0.2:8000"},
            {"url": "https://10.0.0.3:8000", "tls": own.as_settings()},
        ],
        "upstream": {"tls": {"server_name": "vllm.example"}},
    })  # fmt: skip
    found = certificates_of(settings).upstreams
    assert {url: (tls.server_name, tls.is_anonymous) for url, tls in found.items()} == {
        "https://10.0.0.2:8000/": ("vllm.example", True),
        "https://10.0.0.3:8000/": (None, False),
    }


class TestMistakes:
    def test_a_file_that_is_not_there(self, authority, tmp_path):
        own = pair(tmp_path, authority.issue_cert(HOST))
        own.certificate.unlink()
        with pytest.raises(
            CertificateError, match=r"^server\.tls: .*own\.pem, or the key beside it, cannot be read: No"
        ):
            server(**own.as_settings())

    def test_a_file_that_is_none(self, tmp_path):
        (tmp_path / "ca.pem").write_text("no certificate")
        with pytest.raises(CertificateError, match=r"^upstream\.tls: .*ca\.pem cannot be used"):
            upstream(ca_file=str(tmp_path / "ca.pem"))

    def test_a_key_of_another_certificate(self, authority, tmp_path):
        own = pair(tmp_path, authority.issue_cert(HOST))
        own.write_key(authority.issue_cert(HOST))
        with pytest.raises(CertificateError, match=r"cannot be used \(key values mismatch"):
            server(**own.as_settings())

    def test_a_key_with_a_password(self, authority, tmp_path):
        serialization = pytest.importorskip("cryptography.hazmat.primitives.serialization")
        issued = authority.issue_cert(HOST)
        own = pair(tmp_path, issued)
        key = serialization.load_pem_private_key(issued.private_key_pem.bytes(), None)
        form = (serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8)
        own.key.write_bytes(key.private_bytes(*form, serialization.BestAvailableEncryption(b"secret")))
        with pytest.raises(CertificateError, match="has a password; write it without one"):
            server(**own.as_settings())

    @pytest.mark.parametrize(
        ("section", "given", "said"),
        [
            ("server", {"certificate_file": "a"}, "give both or neither"),
            ("server", {"key_file": "a"}, "give both or neither"),
            ("server", {"client_ca_file": "a"}, "without them there is no TLS"),
            ("upstream", {"certificate_file": "a"}, "give both or neither"),
        ],
    )
    def test_settings_that_make_no_pair(self, section, given, said):
        with pytest.raises(ValueError, match=said):
            settings_of("http://127.0.0.1:8000", **{section: {"tls": given}})


def test_a_changed_authority_is_read_again(authority, tmp_path):
    certificates = upstream(ca_file=authority_file(tmp_path, authority))
    (tls,) = certificates.upstreams.values()
    assert len(tls.context.get_ca_certs()) == 1
    certificates.look()
    authority_file(tmp_path, authority, trustme.CA())
    certificates.look()
    assert len(tls.context.get_ca_certs()) == 2
