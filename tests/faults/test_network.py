"""Names, certificates, and bytes that are lost or late on their way."""

import asyncio
import json
import socket
import subprocess
import sys

import pytest
import trustme

from gateway.certificates import LOOK_SECONDS
from tests.faults.asking import ask_many
from tests.faults.proxy import fault_proxy
from tests.support.authorities import HOST, authority_file, expired, pair, serving, trusting
from tests.support.live_gateway import CHAT, chat, live_gateway, until
from tests.support.model_server import Patient, error_of, model_server
from tests.support.raw_client import head

pytestmark = pytest.mark.usefixtures("short_pools")


@pytest.mark.fault("name of the upstream cannot be resolved")
async def test_names(fault, monkeypatch):
    known, resolve = [], socket.getaddrinfo

    def of_one_name(host, *args, **kwargs):
        if host in {"model.test", b"model.test"}:
            if not known:
                raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")
            host = HOST
        return resolve(host, *args, **kwargs)

    monkeypatch.setattr(socket, "getaddrinfo", of_one_name)
    async with model_server() as upstream:
        url = upstream.base_url.replace(HOST, "model.test")
        async with live_gateway(url) as gateway:
            fault.begins()
            told = await gateway.chat()
            assert (told.status_code, error_of(told)["code"]) == (503, "upstream_unavailable")
            known.append(True)
            await gateway.until_up()
            async with fault.inside(gateway):
                assert (await gateway.chat()).status_code == 200
                fault.clients_saw("503 upstream_unavailable, then 200")


@pytest.mark.fault("upstream's certificate expires")
async def test_upstream_certificate(fault, tmp_path):
    authority = trustme.CA()
    context = serving(expired(authority))
    trust = {"tls": {"ca_file": authority_file(tmp_path, authority)}}
    async with model_server(tls=context) as upstream, live_gateway(upstream.base_url, upstream=trust) as gateway:
        fault.begins()
        told = await gateway.chat()
        assert (told.status_code, error_of(told)["code"]) == (503, "upstream_unavailable")
        assert any("expired" in trouble for trouble in gateway.application.troubles())
        authority.issue_cert(HOST).configure_cert(context)  # for handshakes to come
        await gateway.until_up()
        async with fault.inside(gateway):
            assert (await gateway.chat()).status_code == 200
            fault.clients_saw("503 upstream_unavailable, then 200")


async def connect(gateway, authority):
    return await asyncio.open_connection(gateway.host, gateway.port, ssl=trusting(authority))


async def assert_shows(gateway, authority):
    """A certificate of that authority, to whoever comes now."""
    _, writer = await connect(gateway, authority)
    writer.close()
    await writer.wait_closed()


@pytest.mark.fault("own certificate is replaced")
async def test_own_certificate(fault, tmp_path):
    first, second = trustme.CA(), trustme.CA()
    own = pair(tmp_path, first.issue_cert(HOST))
    patient = Patient()
    async with (
        model_server(patient) as upstream,
        live_gateway(upstream.base_url, server={"tls": own.as_settings()}) as gateway,
        fault.inside(gateway),
    ):
        certificates = gateway.application._certificates
        reader, writer = await connect(gateway, first)
        body = json.dumps(chat()).encode()
        writer.write(head(len(body), "connection: close") + body)
        await until(lambda: bool(gateway.held()))
        own.certificate.write_text("damaged")
        certificates.look()
        await assert_shows(gateway, first)
        own.write(second.issue_cert(HOST))
        certificates.look()
        await assert_shows(gateway, second)
        patient.may_answer.set()
        assert (await reader.readline()).split()[1] == b"200"
        fault.clients_saw(f"the old one until the new one is whole (looked at each {LOOK_SECONDS:.0f} s); open: 200")
        writer.close()
        await writer.wait_closed()


@pytest.mark.fault("packets are lost and late")
async def test_lossy_wire(fault, slow_emulator):
    """A proxy of TCP does what such a wire does to the bytes of a connection."""
    async with fault_proxy(slow_emulator.base_url) as proxy, live_gateway(proxy.base_url) as gateway:
        await gateway.until_up()
        proxy.late_seconds, proxy.lost_share = 0.05, 0.05
        async with fault.inside(gateway):
            bodies = [chat(f"Number {n}.", stream=True, max_tokens=20, ignore_eos=True) for n in range(20)]
            answers = await ask_many(gateway, bodies)
            ends = {(each.status_code, each.content.endswith(b"data: [DONE]\n\n")) for each in answers}
            assert ends == {(200, True)}
            assert not any(b'"error"' in each.content for each in answers)
            assert proxy.lost
            fault.clients_saw(f"20 streams whole; {proxy.lost} pieces lost and sent again")


@pytest.mark.faults
@pytest.mark.system("ip", "iptables", "unshare", root=True)
@pytest.mark.fault("packets are lost and late")
async def test_packets_lost(fault):
    """The kernel itself loses every tenth packet, in a network of its own: gateway, upstream and clients are in it."""
    command = ["unshare", "--net", sys.executable, "-m", "tests.faults.lossy"]
    done = await asyncio.to_thread(subprocess.run, command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    told = json.loads(done.stdout.splitlines()[-1])
    assert told["whole"] == told["asked"]
    assert told["held"] == {}
    assert told["lost_packets"] > 0
    fault.clients_saw(f"{told['whole']} streams whole on {CHAT}; {told['lost_packets']} packets lost")
    fault.process_is_gone()
