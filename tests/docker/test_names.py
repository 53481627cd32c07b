"""Names of containers, networks, volumes and hosts."""

from __future__ import annotations

import re

from hypothesis import given
from hypothesis import strategies as st

from transload_docker import names

IDS = st.from_regex(r"[A-Za-z0-9_][A-Za-z0-9_.:@-]{0,199}", fullmatch=True)
ROLES = st.from_regex(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,30}", fullmatch=True)
TAKEN = re.compile(r"[a-zA-Z0-9][a-zA-Z0-9_.-]+\Z")


@given(IDS, ROLES, st.integers(0, 999), st.integers(0, 9))
def test_an_engine_takes_every_name(app_id: str, role: str, k: int, attempt: int) -> None:
    """Whatever the id, the names are ones that an engine accepts."""
    for name in (names.container_name(app_id, role, k, attempt), names.mark_name(app_id)):
        assert TAKEN.match(name)


@given(st.lists(st.tuples(IDS, ROLES), min_size=2, max_size=2, unique=True))
def test_names_of_different_replicas_differ(pairs: list[tuple[str, str]]) -> None:
    """Two replicas of two apps or roles never share a name."""
    (one, role_one), (two, role_two) = pairs
    assert names.container_name(one, role_one, 0, 0) != names.container_name(two, role_two, 0, 0)


def test_an_app_and_a_role_cannot_be_confused() -> None:
    """App "a-b" with role "c" and app "a" with role "b-c" are told apart."""
    assert names.container_name("a-b", "c", 0, 0) != names.container_name("a", "b-c", 0, 0)


@given(st.lists(ROLES, min_size=1, max_size=5, unique=True))
def test_host_names_are_dns_labels_and_unique(roles: list[str]) -> None:
    """Every replica has a host name of its own that a resolver takes."""
    hosts = names.host_names("app", [(role, 3) for role in roles])
    flat = [host for part in hosts for host in part]
    assert len(set(flat)) == len(roles) * 3
    assert all(re.fullmatch(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?", host) for host in flat)
