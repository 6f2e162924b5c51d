"""Why a picture was not fetched, before it is known of which part of which request: several may wait for it."""

from gateway.domain.errors import Code, GatewayError

_INSTEAD = "Send the image as a data URL (data:image/png;base64,...), or an address that can be fetched."


class FetchError(Exception):
    """`sentence` goes to the client; it tells nothing of the network that the gateway stands in."""

    def __init__(self, code: Code, sentence: str) -> None:
        super().__init__(sentence)
        self.code = code
        self.sentence = sentence

    def about(self, param: str) -> GatewayError:
        """As the client whose request has the address at `param` is told."""
        return GatewayError(self.code, f"`{param}`: {self.sentence}", param=param)


def address_refused(why: str) -> FetchError:
    return FetchError(Code.INVALID_IMAGE_URL, f"The image at this address is not fetched: {why}. {_INSTEAD}")


def address_denied() -> FetchError:
    """The same words for every address, for every way to it, and for a name that has none."""
    return address_refused(
        "its host has no address in the public internet, or leads out of it (images.remote.allow_networks opens some)"
    )


def download_failed(why: str) -> FetchError:
    return FetchError(Code.FAILED_TO_DOWNLOAD_IMAGE, f"The image could not be downloaded: {why}. {_INSTEAD}")


def too_large(bytes_said: str, most_bytes: int) -> FetchError:
    return FetchError(
        Code.IMAGE_TOO_LARGE,
        f"The image at this address has {bytes_said} bytes and the limit is {most_bytes} (images.max_bytes). "
        "Send a smaller one.",
    )
