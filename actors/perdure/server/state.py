"""What all requests share: the host, who may ask, the streams, and whether the server still takes work."""

from __future__ import annotations

from dataclasses import dataclass, field

from perdure.actors.tenancy import Tenancy
from perdure.edges.settings_hosting import ServerSettings
from perdure.host import Host
from perdure.server.auth import Keys
from perdure.server.hub import Hub


@dataclass(slots=True)
class Serving:
    """One for a host. `draining`: new messages are refused, what runs may end."""

    host: Host
    settings: ServerSettings
    keys: Keys
    tenancy: Tenancy
    hub: Hub
    draining: bool = False
    answered: dict[str, int] = field(default_factory=dict)  # by status class
