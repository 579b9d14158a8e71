"""The settings: compact questions, games, tool use. Each is a `domain.Domain` record."""

from spade_jax.domains import compact, domain, games, tool_use

DOMAINS = {"compact": compact.DOMAIN, "games": games.DOMAIN, "tool_use": tool_use.DOMAIN}


def get(name: str) -> domain.Domain:
    """Look a setting up by name."""
    if name not in DOMAINS:
        raise ValueError(f"setting={name!r} is unknown; use one of {', '.join(DOMAINS)}.")
    return DOMAINS[name]
