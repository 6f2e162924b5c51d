"""How the servers behind the gateway are spoken to over TLS, and what went wrong with a certificate in words."""

import ssl
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class UpstreamTls:
    """Whom to trust, and whether there is a certificate to prove oneself with. The context lives as long as the
    process: what it holds is renewed in place. `server_name` is the name that the server's certificate must have, None:
    that of the address.
    """

    context: ssl.SSLContext
    server_name: str | None = None
    is_anonymous: bool = True

    @property
    def hint(self) -> str:
        """Where connections break: TLS 1.3 tells a client only after the handshake that it should have shown one."""
        return " (does it ask for a certificate? `tls.certificate_file` is left out)" if self.is_anonymous else ""


def certificate_trouble(error: BaseException | None) -> str | None:
    """Why the server's certificate was refused; None where it is about something else."""
    while error is not None:
        # By its class aiohttp's error is the one that says why too: hence no look at the class.
        why = getattr(error, "verify_message", None)
        if why is not None:
            return f"its certificate is refused: {why}"
        error = error.__cause__ or error.__context__
    return None
