"""A worker's URL, and the user and password that may stand in it."""

from __future__ import annotations

from urllib.parse import SplitResult, unquote, urlsplit, urlunsplit

from cdc.errors import InvalidConnector


def without_password(url: str) -> tuple[str, tuple[str, str] | None]:
    """Return a worker's URL without user and password, and these; InvalidConnector for what is no URL of a worker."""
    parts = _url_parts(url.rstrip("/"))
    # A slash, a question mark or a number sign ended the host in the middle of a password.
    if parts is None or "@" in f"{parts.path}{parts.query}{parts.fragment}":
        # Raised here, and not above: the words of what was wrong may hold the URL, and with it a password.
        raise InvalidConnector(
            "the URL of the Connect worker cannot be read",
            remedy="write https://USER:PASSWORD@HOST:PORT, with @ / # ? of a password as %40 %2F %23 %3F",
            place="url",
        )
    if parts.username is None:
        return url.rstrip("/"), None
    host = parts.netloc.rpartition("@")[2]
    return urlunsplit(parts._replace(netloc=host)), (unquote(parts.username), unquote(parts.password or ""))


def _url_parts(url: str) -> SplitResult | None:
    try:
        parts = urlsplit(url)
        _ = parts.port
    except ValueError:
        return None
    return parts if parts.scheme in ("http", "https") and parts.hostname else None
