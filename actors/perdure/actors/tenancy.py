"""Whose a session is: the tenant that its agent belongs to."""

from __future__ import annotations

from perdure.actors.prompting import agent_of
from perdure.edges.settings import Settings
from perdure.edges.settings_hosting import TenantSettings


class Tenancy:
    """Tenants by agent. An agent that no tenant names is a tenant of its own name."""

    def __init__(self, settings: Settings) -> None:
        self.adopt(settings)

    def adopt(self, settings: Settings) -> None:
        """From now on, for everybody who holds it."""
        self.listed = {tenant.name: tenant for tenant in settings.tenants}
        self._by_agent = {agent: tenant for tenant in settings.tenants for agent in tenant.agents}

    def of(self, key: str) -> TenantSettings:
        """The tenant of a session key."""
        agent = agent_of(key)
        return self._by_agent.get(agent) or TenantSettings(agent, (agent,))

    def named(self, name: str) -> TenantSettings | None:
        """A listed tenant by its name."""
        return self.listed.get(name)

    def owns(self, tenant: TenantSettings, key: str) -> bool:
        """Whether `tenant` may use the session."""
        return tenant.operator or self.of(key).name == tenant.name
