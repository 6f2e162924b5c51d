"""What keeps tenants apart in the caches of a model server that they share: names that no other tenant can come by.

vLLM takes the `uuid` of an image for the image, whoever sends it, and finds the beginning of a prompt again for whoever
sends the same. So neither leaves here as a client wrote it: each is the keyed hash of the tenant and of what the client
said. The key is this deployment's alone. Nobody can compute the name of another tenant's picture, and a picture that is
changed here has another name than the one that came.
"""

from dataclasses import dataclass, field
from functools import lru_cache
from hashlib import blake2b

from gateway.domain.tenancy import CROWD

_KEY_BYTES = 32
_NAME_BYTES = 24
"""48 hex digits: more than anybody can guess, and well below the 128 characters that vLLM 0.32 takes."""
_REMEMBERED_SALTS = 2048


@dataclass(frozen=True, slots=True)
class Isolation:
    """`key` is the secret of this deployment, `salts_prefixes` whether tenants share no beginnings of prompts."""

    key: bytes = field(repr=False)
    salts_prefixes: bool = False

    @classmethod
    def of(cls, secret: bytes, *, salts_prefixes: bool) -> "Isolation":
        """`secret` may be of any length, and is all that the names hang on."""
        return cls(blake2b(secret, digest_size=_KEY_BYTES).digest(), salts_prefixes)

    def image_name(self, tenant: str, uuid: str, digest: bytes, treatment: str) -> str:
        """By which the server is to know an image.

        `digest` is the hash of the file that the tenant sent under `uuid`, `treatment` what made another file of it
        (empty: nothing): a name never stands for two files.
        """
        return _mac(self.key, b"image", tenant.encode(), uuid.encode(), digest, treatment.encode())

    def salt(self, tenant: str, own: str | None, request_id: str) -> str:
        """Of the prefixes that the request may share; `own` is the client's, which tells apart within its tenant.

        Of tenants that could not be told apart any more, no two requests share one.
        """
        if tenant == CROWD:
            return _mac(self.key, b"request", request_id.encode())
        return _salt(self.key, tenant) if own is None else _mac(self.key, b"own", tenant.encode(), own.encode())


def may_name_images(tenant: str) -> bool:
    """Not those of whom it is not known whether they are one: they would see each other's pictures."""
    return tenant != CROWD


@lru_cache(maxsize=_REMEMBERED_SALTS)
def _salt(key: bytes, tenant: str) -> str:
    return _mac(key, b"tenant", tenant.encode())


def _mac(key: bytes, *parts: bytes) -> str:
    """Each part with its length before it, so that no two lists of parts read alike."""
    mac = blake2b(digest_size=_NAME_BYTES, key=key)
    for part in parts:
        mac.update(len(part).to_bytes(8))
        mac.update(part)
    return mac.hexdigest()
