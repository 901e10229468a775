"""Where a configured name may lead: resolved once, looked at, and connected to as it was looked at.

An address in a configuration, or a name somebody else answers for, must not reach what only this machine
or its network can (server-side request forgery). A name that has one private address is refused whole.
"""

from __future__ import annotations

import socket
from ipaddress import IPv4Address, IPv6Address, IPv6Network, ip_address
from typing import Literal

import anyio

_NAT64 = IPv6Network("64:ff9b::/96")


class Refused(Exception):
    """Not connected to: an address that is not public (`permanent`), or none at all (`retryable`)."""

    def __init__(self, kind: Literal["permanent", "retryable"], text: str) -> None:
        super().__init__(text)
        self.kind = kind


async def public_address(host: str, port: int, *, allow_private: bool) -> str:
    """An address of `host` to connect to. Raises `Refused`."""
    try:
        found = await anyio.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError):
        raise Refused("retryable", "its name is not known") from None
    addresses = [str(sockaddr[0]) for *_, sockaddr in found]
    if not addresses:
        raise Refused("retryable", "its name has no address")
    if not allow_private and not all(is_public(address) for address in addresses):
        raise Refused("permanent", "its address is not public: allow_private lets it be used")
    return addresses[0]


def is_public(address: str) -> bool:
    """Whether an address is one of the whole internet's, whatever form it is written in."""
    try:
        found = ip_address(address.partition("%")[0])
    except ValueError:
        return False
    return found.is_global and not found.is_multicast and all(map(_is_public, _inner(found)))


def _is_public(found: IPv4Address) -> bool:
    return found.is_global and not found.is_multicast


def _inner(found: IPv4Address | IPv6Address) -> list[IPv4Address]:
    """IPv4 addresses that an IPv6 one leads to."""
    if isinstance(found, IPv4Address):
        return []
    inner = [each for each in (found.ipv4_mapped, found.sixtofour) if each is not None]
    inner += list(found.teredo or ())
    return [*inner, IPv4Address(int(found) & 0xFFFFFFFF)] if found in _NAT64 else inner
