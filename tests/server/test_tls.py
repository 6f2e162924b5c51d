"""Real handshakes on both sides: whom the gateway trusts, who trusts it, and certificates that change meanwhile."""

import asyncio
import contextlib
import ssl

import httpx
import pytest
import trustme

from tests.support import authorities
from tests.support.authorities import HOST, authority_file, pair, serving, trusting
from tests.support.live_gateway import CHAT, chat, live_gateway, until
from tests.support.model_server import Patient, answer_chat, model_server

BIG = chat("x" * (3 << 20))


@pytest.fixture(scope="module")
def authority():
    return trustme.CA()


@pytest.fixture(scope="module")
def stranger():
    """An authority that nobody trusts."""
    return trustme.CA()


@contextlib.asynccontextmanager
async def https_gateway(own, script=answer_chat, client_ca=None, **sections):
    tls = own.as_settings(**({"client_ca_file": client_ca} if client_ca else {}))
    server = {"tls": tls} | sections.pop("server", {})
    async with model_server(script) as upstream, live_gateway(upstream.base_url, server=server, **sections) as gateway:
        await gateway.until_up()
        yield gateway


def client(gateway, context):
    return httpx.AsyncClient(base_url=gateway.http.base_url, verify=context, timeout=30, trust_env=False)


async def serial_number(gateway, authority):
    """Of the certificate that a new connection is shown."""
    _, writer = await asyncio.open_connection(gateway.host, gateway.port, ssl=trusting(authority))
    number = writer.get_extra_info("peercert")["serialNumber"]
    writer.close()
    with contextlib.suppress(ssl.SSLError, ConnectionError):
        await writer.wait_closed()
    return number


class TestTowardsClients:
    async def test_answers_and_streams(self, authority, tmp_path):
        own = pair(tmp_path, authority.issue_cert(HOST))
        async with https_gateway(own) as gateway, client(gateway, trusting(authority)) as http:
            assert (await http.post(CHAT, json=chat())).status_code == 200
            assert (await http.post(CHAT, json=BIG)).status_code == 200
            stream = await http.post(CHAT, json=chat(stream=True))
            assert stream.text.endswith("data: [DONE]\n\n")
            await gateway.until_released()

    async def test_who_does_not_know_the_authority_does_not_connect(self, authority, stranger, tmp_path):
        own = pair(tmp_path, authority.issue_cert(HOST))
        async with https_gateway(own) as gateway, client(gateway, trusting(stranger)) as http:
            with pytest.raises(httpx.ConnectError, match="CERTIFICATE_VERIFY_FAILED"):
                await http.post(CHAT, json=chat())

    async def test_tls_before_1_2_is_refused(self, authority, tmp_path):
        own = pair(tmp_path, authority.issue_cert(HOST))
        old = trusting(authority)
        with pytest.warns(DeprecationWarning, match="TLSv1"):
            old.minimum_version, old.maximum_version = ssl.TLSVersion.TLSv1, ssl.TLSVersion.TLSv1_1
        old.set_ciphers("ALL:@SECLEVEL=0")
        async with https_gateway(own) as gateway, client(gateway, old) as http:
            with pytest.raises(httpx.ConnectError):
                await http.get("/livez")

    async def test_a_refused_upload_gets_its_answer(self, authority, tmp_path):
        """Where the connection would be half-closed, which TLS cannot."""
        own = pair(tmp_path, authority.issue_cert(HOST))
        sections = {"server": {"max_body_bytes": 100_000}}
        async with https_gateway(own, **sections) as gateway, client(gateway, trusting(authority)) as http:
            answer = await http.post(CHAT, json=BIG)
            assert (answer.status_code, answer.json()["error"]["code"]) == (413, "request_too_large")

    async def test_a_client_that_leaves_frees_its_place(self, authority, tmp_path):
        own = pair(tmp_path, authority.issue_cert(HOST))
        patient = Patient()
        async with https_gateway(own, patient) as gateway:
            async with client(gateway, trusting(authority)) as http:
                waiting = asyncio.create_task(http.post(CHAT, json=chat()))
                await until(lambda: gateway.metrics("gateway_upstream_requests_in_flight") != {})
                waiting.cancel()
            await gateway.assert_ended("client_left", status=499)

    async def test_without_a_certificate_that_is_asked_for_nobody_comes_in(self, authority, stranger, tmp_path):
        own = pair(tmp_path, authority.issue_cert(HOST))
        theirs = trustme.CA()
        async with https_gateway(own, client_ca=authority_file(tmp_path, theirs)) as gateway:
            async with client(gateway, trusting(authority, theirs.issue_cert("team-a"))) as http:
                assert (await http.post(CHAT, json=chat())).status_code == 200
            for context in (trusting(authority), trusting(authority, stranger.issue_cert("team-a"))):
                async with client(gateway, context) as http:
                    with pytest.raises(httpx.TransportError):
                        await http.post(CHAT, json=chat())

    async def test_a_new_certificate_cuts_nothing(self, authority, tmp_path, caplog):
        caplog.set_level("INFO")
        own = pair(tmp_path, authority.issue_cert(HOST))
        patient = Patient(then=answer_chat)
        async with https_gateway(own, patient) as gateway, client(gateway, trusting(authority)) as http:
            held = asyncio.create_task(http.post(CHAT, json=chat(stream=True)))
            await until(lambda: gateway.metrics("gateway_upstream_requests_in_flight") != {})
            for _ in range(3):
                before = await serial_number(gateway, authority)
                load = [asyncio.create_task(http.post(CHAT, json=chat())) for _ in range(20)]
                own.write(authority.issue_cert(HOST))
                gateway.application._certificates.look()
                assert await serial_number(gateway, authority) != before
                assert {answer.status_code for answer in await asyncio.gather(*load)} == {200}
            assert not held.done()
            patient.may_answer.set()
            assert (await held).text.endswith("data: [DONE]\n\n")
        assert caplog.text.count("server.tls: certificates were read anew") == 3

    async def test_a_half_of_a_pair_is_not_taken(self, authority, tmp_path, caplog):
        own = pair(tmp_path, authority.issue_cert(HOST))
        async with https_gateway(own) as gateway:
            look, before = gateway.application._certificates.look, await serial_number(gateway, authority)
            new = authority.issue_cert(HOST)
            own.write_certificate(new)
            look()
            look()
            assert await serial_number(gateway, authority) == before
            assert caplog.text.count("own.pem cannot be used (key values mismatch); what was read before stays") == 1
            own.write_key(new)
            look()
            assert await serial_number(gateway, authority) != before
            own.key.unlink()
            look()
            assert "cannot be read: No such file or directory" in caplog.text
            assert (await gateway.chat()).status_code == 200


@contextlib.asynccontextmanager
async def before_https(context, **tls):
    async with (
        model_server(tls=context) as upstream,
        live_gateway(upstream.base_url, upstream={"tls": tls}) as gateway,
    ):
        yield gateway, upstream


async def trouble(gateway):
    """What the page of readiness, and a client, are told."""
    await until(lambda: any("/health" in each for each in gateway.application.troubles()))
    ready, refused = await gateway.http.get("/readyz"), await gateway.chat()
    assert (ready.status_code, refused.status_code) == (503, 503)
    return ready.json()["reason"], refused.json()["error"]["message"]


class TestTowardsServers:
    async def test_both_paths_trust_the_given_authority(self, authority, tmp_path):
        ca_file = authority_file(tmp_path, authority)
        async with before_https(serving(authority.issue_cert(HOST)), ca_file=ca_file) as (gateway, _):
            await gateway.until_up()
            assert (await gateway.chat()).status_code == 200

    @pytest.mark.parametrize(
        ("certificate", "why"),
        [
            (lambda authority, _: authorities.expired(authority), "certificate has expired"),
            (lambda _, stranger: stranger.issue_cert(HOST), "unable to get local issuer certificate"),
            (lambda authority, _: authority.issue_cert("vllm.example"), "IP address mismatch"),
        ],
        ids=["expired", "of another authority", "of another name"],
    )
    async def test_a_bad_certificate_is_told_where_one_looks(self, authority, stranger, tmp_path, certificate, why):
        context = serving(certificate(authority, stranger))
        async with before_https(context, ca_file=authority_file(tmp_path, authority)) as (gateway, upstream):
            for text in await trouble(gateway):
                assert "its certificate is refused: " in text
                assert why in text
            assert upstream.visits == [], "nothing went out before the handshake"

    async def test_the_name_may_be_given(self, authority, tmp_path):
        context = serving(authority.issue_cert("vllm.example"))
        named = {"ca_file": authority_file(tmp_path, authority), "server_name": "vllm.example"}
        async with before_https(context, **named) as (gateway, _):
            await gateway.until_up()
            assert (await gateway.chat()).status_code == 200

    async def test_a_server_that_asks_for_a_certificate(self, authority, tmp_path):
        context = serving(authority.issue_cert(HOST), asks_for=authority)
        ca_file = authority_file(tmp_path, authority)
        async with before_https(context, ca_file=ca_file) as (gateway, _):
            await until(lambda: any("/health" in each for each in gateway.application.troubles()))
            ready = await gateway.http.get("/readyz")
            assert "does it ask for a certificate? `tls.certificate_file` is left out" in ready.json()["reason"]
            assert (await gateway.chat()).status_code in {502, 503}
        own = pair(tmp_path, authority.issue_cert("gateway"))
        async with before_https(context, **own.as_settings(ca_file=ca_file)) as (gateway, _):
            await gateway.until_up()
            assert (await gateway.chat()).status_code == 200

    async def test_several_servers_have_their_own(self, authority, stranger, tmp_path):
        ca, other = authority_file(tmp_path, authority), authority_file(tmp_path, stranger, name="other")
        async with (
            model_server(tls=serving(authority.issue_cert(HOST))) as first,
            model_server(tls=serving(stranger.issue_cert(HOST))) as second,
            model_server() as plain,
        ):
            servers = [{"url": first.base_url}, {"url": second.base_url, "tls": {"ca_file": other}}]
            common = {"upstream": {"tls": {"ca_file": ca}}, "upstreams": [*servers, {"url": plain.base_url}]}
            async with live_gateway({}, **common) as gateway:
                await gateway.until_up()

    async def test_an_authority_that_joins_the_file_is_trusted(self, authority, stranger, tmp_path, caplog):
        caplog.set_level("INFO")
        ca_file = authority_file(tmp_path, authority)
        async with before_https(serving(stranger.issue_cert(HOST)), ca_file=ca_file) as (gateway, _):
            await trouble(gateway)
            authority_file(tmp_path, authority, stranger)
            gateway.application._certificates.look()
            await gateway.until_up()
            assert (await gateway.chat()).status_code == 200
        assert "upstream.tls: certificates were read anew" in caplog.text
