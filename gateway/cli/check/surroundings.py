"""What settings name but do not hold, looked at once: files of keys and certificates, and whether this is a container.

What is doubtful about it is doubts.py's to say.
"""

import ssl
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

from gateway.key_reload import keys_of_file
from gateway.settings import Settings
from gateway.settings.keys import KeyEntry

_MOST_ROUNDS = 10  # of a handshake, which takes three
_MARKS_OF_CONTAINERS = ("/.dockerenv", "/run/.containerenv")


class Surroundings(NamedTuple):
    """`keys` are those of the keys file. `modes` are the permission bits of secret files, `ends` the last moments of
    certificates, both by path.
    """

    now: datetime
    is_container: bool = False
    keys: Sequence[KeyEntry] = ()
    modes: Mapping[str, int] = {}
    ends: Mapping[str, datetime] = {}


def look_around(settings: Settings, environment: Mapping[str, str]) -> Surroundings:
    """Raises KeysFileError. Certificates that cannot be used are left out: who makes contexts of them says why."""
    pairs = list(_pairs(settings))
    secret_files = [settings.keys.file, settings.upstream.api_key_file, *(key for _, key, _ in pairs)]
    marked = any(Path(mark).exists() for mark in _MARKS_OF_CONTAINERS)
    ends = {certificate: _end_of(certificate, key, is_client=is_client) for certificate, key, is_client in pairs}
    return Surroundings(
        now=datetime.now(UTC),
        is_container=marked or "KUBERNETES_SERVICE_HOST" in environment,
        keys=keys_of_file(settings),
        modes={path: Path(path).stat().st_mode & 0o777 for path in secret_files if path and Path(path).exists()},
        ends={path: end for path, end in ends.items() if end is not None},
    )


def _pairs(settings: Settings) -> Iterator[tuple[str, str, bool]]:
    """Certificate, key, and whether it is shown to servers."""
    own, common = settings.server.tls, settings.upstream.tls
    if own.certificate_file and own.key_file:
        yield own.certificate_file, own.key_file, False
    for tls in (common, *(each.tls for each in settings.upstreams if each.tls)):
        if tls.certificate_file and tls.key_file:
            yield tls.certificate_file, tls.key_file, True


def _end_of(certificate: str, key: str, *, is_client: bool) -> datetime | None:
    """By a handshake in memory with one that trusts just this certificate: `ssl` reads none by itself. One that has
    expired already is refused in it, and ended before all that is asked about.
    """
    roles = ssl.PROTOCOL_TLS_CLIENT, ssl.PROTOCOL_TLS_SERVER
    holder, judge = (ssl.SSLContext(role) for role in (roles if is_client else roles[::-1]))
    holder.check_hostname = judge.check_hostname = False
    holder.verify_mode, judge.verify_mode = ssl.CERT_NONE, ssl.CERT_REQUIRED
    judge.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    try:
        for side in (holder, judge):  # the side of the server needs one in any case
            side.load_cert_chain(certificate, key, password=lambda: "")
        judge.load_verify_locations(certificate)
        seen = _seen_by(judge, holder, judge_is_server=is_client)
    except ssl.SSLCertVerificationError as error:
        return datetime.min.replace(tzinfo=UTC) if "expired" in error.verify_message else None
    except (OSError, ValueError):
        return None
    return datetime.fromtimestamp(ssl.cert_time_to_seconds(str(seen["notAfter"])), UTC)


def _seen_by(judge: ssl.SSLContext, holder: ssl.SSLContext, *, judge_is_server: bool) -> Mapping[str, object]:
    """The certificate that `holder` shows. Raises SSLError."""
    there, back = ssl.MemoryBIO(), ssl.MemoryBIO()
    judging = judge.wrap_bio(there, back, server_side=judge_is_server)
    holding = holder.wrap_bio(back, there, server_side=not judge_is_server)
    for _ in range(_MOST_ROUNDS):
        if seen := _moved(judging, holding):
            return seen
    raise ssl.SSLError("the handshake comes to no end")


def _moved(judging: ssl.SSLObject, holding: ssl.SSLObject) -> Mapping[str, object]:
    for side in (holding, judging):
        try:
            side.do_handshake()
        except ssl.SSLWantReadError:
            continue
    try:
        return judging.getpeercert() or {}
    except ValueError:  # the handshake is not done
        return {}
