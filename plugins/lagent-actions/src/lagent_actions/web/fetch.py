"""Reading pages of the public web, and nothing else."""

from __future__ import annotations

import ipaddress
import re
import socket
import time
from collections.abc import Collection
from typing import Any
from urllib.parse import urljoin, urlsplit

import httpx2
from bs4 import BeautifulSoup

__all__ = ["ContentFetcher", "RefusedAddressError"]

_MOST_REDIRECTS = 5
_NAT64 = ipaddress.ip_network("64:ff9b::/96")
_READABLE = ("text/", "application/json", "application/xml", "application/xhtml+xml")
_REDIRECTS = (301, 302, 303, 307, 308)


class RefusedAddressError(ValueError):
    """An address that is not to be fetched: not of the public web, or not http or https."""


class ContentFetcher:
    """Fetches pages as text, if their address is public.

    The name of the host is looked up here, every address that it has is checked, and the connection goes to one that was: a name that
    changes its address in between, or a redirect, leads nowhere else. Proxies of the environment are not used.

    Args:
        timeout: seconds that a page may take, redirects included.
        most_bytes: how much of a page is read.
        allowed_hosts: hosts that may be fetched though their addresses are private.
    """

    def __init__(self, timeout: float = 5, most_bytes: int = 2 << 20, allowed_hosts: Collection[str] = ()) -> None:
        self.timeout, self.most_bytes, self.allowed_hosts = timeout, most_bytes, frozenset(allowed_hosts)

    def fetch(self, url: str) -> tuple[bool, str]:
        """Whether it went well, and the text of the page or what was wrong."""
        try:
            return True, self.read(url)
        except (RefusedAddressError, httpx2.HTTPError, httpx2.InvalidURL, OSError) as error:
            return False, f"{url} cannot be read: {error or type(error).__name__}"

    def read(self, url: str) -> str:
        """The text of a page.

        Raises:
            RefusedAddressError: the address, or one to which it leads, is not public.
            httpx2.HTTPError, OSError: the page cannot be had within the time, or is no text.
        """
        deadline = time.monotonic() + self.timeout
        with httpx2.Client(timeout=self.timeout, trust_env=False) as client:
            for _ in range(_MOST_REDIRECTS + 1):
                request = self._request(client, url)
                response = client.send(request, stream=True)
                try:
                    location = response.headers.get("location")
                    if response.status_code in _REDIRECTS and location:
                        url = urljoin(url, location)
                        continue
                    if response.status_code >= 400:
                        raise OSError(f"the server answered {response.status_code} {response.reason_phrase}")
                    return self._text(response, deadline)
                finally:
                    response.close()
        raise OSError(f"more than {_MOST_REDIRECTS} redirects")

    def _request(self, client: httpx2.Client, url: str) -> httpx2.Request:
        """A request to the checked address itself, with the name of the host in the header and for TLS."""
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname or parts.username is not None:
            raise RefusedAddressError(f"only http and https addresses without a password are read, not {url!r:.200}")
        try:
            port = parts.port or (443 if parts.scheme == "https" else 80)
        except ValueError as error:
            raise RefusedAddressError(f"{url!r:.200}: {error}") from error
        address = self._address(parts.hostname, port)
        host = f"[{address}]" if ":" in address else address
        path = f"{parts.path or '/'}{'?' + parts.query if parts.query else ''}"
        headers = {"Host": parts.netloc, "User-Agent": "lagent", "Accept-Encoding": "identity"}
        return client.build_request(
            "GET", f"{parts.scheme}://{host}:{port}{path}", headers=headers, extensions={"sni_hostname": parts.hostname}
        )

    def _address(self, host: str, port: int) -> str:
        found: list[Any] = [info[4][0] for info in socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)]
        if host not in self.allowed_hosts:
            for address in found:
                if not _public(address):
                    raise RefusedAddressError(f"{host} has the address {address}, which is not of the public web")
        return str(found[0])

    def _text(self, response: httpx2.Response, deadline: float) -> str:
        kind = response.headers.get("content-type", "text/html").lower()
        if not kind.startswith(_READABLE):
            raise OSError(f"it is no text, but {kind}")
        data = b""
        for piece in response.iter_bytes():
            data += piece
            if len(data) >= self.most_bytes:
                break
            if time.monotonic() > deadline:
                raise TimeoutError(f"it is not complete within {self.timeout:g} seconds")
        data = data[: self.most_bytes]
        if "html" not in kind:
            return data.decode(response.charset_encoding or "utf-8", errors="replace")
        page = BeautifulSoup(data, "html.parser", from_encoding=response.charset_encoding)
        for hidden in page(["script", "style", "noscript", "template"]):
            hidden.decompose()
        lines = (line.strip() for line in page.get_text("\n").splitlines())
        return re.sub(r"\n{2,}", "\n", "\n".join(line for line in lines if line))


def _public(address: str) -> bool:
    ip = ipaddress.ip_address(address.partition("%")[0])
    if isinstance(ip, ipaddress.IPv6Address):
        inner = ip.ipv4_mapped or ip.sixtofour or (ip.teredo[1] if ip.teredo else None)
        if ip in _NAT64:
            inner = ipaddress.IPv4Address(int(ip) & 0xFFFFFFFF)
        if inner is not None:
            return _public(str(inner))
    return ip.is_global and not ip.is_multicast
