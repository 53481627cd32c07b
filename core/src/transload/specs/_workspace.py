"""Which local folders travel with the job."""

from __future__ import annotations

from dataclasses import dataclass, field

from transload.specs._check import check_dict, check_str, refuse


@dataclass
class Workspace:
    """Local folders that are copied to where the job runs.

    Args:
        projects: local folder → folder inside the job's workspace (``""``: its root).

    Raises:
        SpecError: for a target that leaves the workspace.
    """

    projects: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.check("Workspace")

    def check(self, path: str) -> None:
        """Refuse wrong values; ``path`` starts the message."""
        check_dict(self.projects, f"{path}.projects")
        for source, target in self.projects.items():
            check_str(source, f"{path}.projects key", empty=False)
            check_str(target, f"{path}.projects[{source!r}]")
            if target.startswith("/") or ".." in target.split("/"):
                refuse(f"{path}.projects[{source!r}]", target, "must be a relative folder without '..'")

    def __bool__(self) -> bool:
        return bool(self.projects)

    @staticmethod
    def from_str(workspace: str | None) -> Workspace:
        """Read ``"PATH"`` or ``"PATH=TARGET,PATH=TARGET"``; None or ``""`` is the empty workspace."""
        projects: dict[str, str] = {}
        for part in (workspace or "").replace(";", ",").split(","):
            if part.strip():
                source, _, target = part.strip().partition("=")
                projects[source.removeprefix("file://")] = target
        return Workspace(projects)

    def __str__(self) -> str:
        return ",".join(f"{source}={target}" if target else source for source, target in self.projects.items())
