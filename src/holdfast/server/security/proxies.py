"""A proxy in front that is trusted: it says in a header who somebody is, and from where they come."""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping, Sequence

from holdfast.base.data import data
from holdfast.errors import UsageError


@data
class Proxies:
    """The addresses of proxies, and the header that names people; others who send it are not believed."""

    networks: tuple[ipaddress.IPv4Network | ipaddress.IPv6Network, ...] = ()
    header: str = ""  #: in lower case

    @classmethod
    def of(cls, networks: Sequence[str], *, header: str) -> Proxies:
        try:
            found = tuple(ipaddress.ip_network(each, strict=False) for each in networks)
        except ValueError as error:
            raise UsageError(f"--trusted-proxy takes an address or a network, such as 10.0.0.0/8: {error}.") from None
        return cls(found, header.lower())

    def trusts(self, peer: str) -> bool:
        address = _address(peer)
        return address is not None and any(address in network for network in self.networks)

    def name_of(self, headers: Mapping[str, str], peer: str) -> str | None:
        """Who the proxy says it is; None if nobody says so who is believed."""
        name = headers.get(self.header, "").strip() if self.header and self.trusts(peer) else ""
        return name if 0 < len(name) <= 200 and name.isprintable() else None

    def peer_of(self, headers: Mapping[str, str], peer: str) -> str:
        """Who is counted when a sign-in fails: the last address that a trusted proxy added, else the peer itself."""
        if not self.trusts(peer):
            return peer
        last = headers.get("x-forwarded-for", "").rpartition(",")[2].strip()
        return last if _address(last) is not None else peer


def _address(text: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        return ipaddress.ip_address(text)
    except ValueError:
        return None
