"""Macros: the tokens that are replaced before a replica starts."""

from __future__ import annotations

import copy
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from transload.specs._app import Role

_MACRO = r"\$\{(img_root|app_id|replica_id|rank0_env|output_dir)\}"


class macros:  # noqa: N801 - the field's established name
    """Tokens for ``Role.args``, the values of ``Role.env`` and ``Role.metadata``.

    - ``img_root``: root folder of the unpacked image.
    - ``app_id``: id of the app as its scheduler knows it.
    - ``replica_id``: number of the replica within its role, from 0; a replica started again keeps it.
    - ``rank0_env``: *name* of the environment variable that holds the host name of replica 0 of the first role.
    - ``output_dir``: folder of the app's own for files that it makes (``TRANSLOAD_OUTPUT_DIR``).

    Exactly these are replaced. Any other ``$`` is the user's, and stays as it was.
    """

    img_root = "${img_root}"
    app_id = "${app_id}"
    replica_id = "${replica_id}"
    rank0_env = "${rank0_env}"
    output_dir = "${output_dir}"

    @dataclass
    class Values:
        """The values that the tokens stand for."""

        img_root: str
        app_id: str
        replica_id: str
        rank0_env: str
        output_dir: str = "${output_dir}"

        def apply(self, role: Role) -> Role:
            """Return a deep copy of ``role`` with the tokens in args, env values and metadata replaced."""
            role = copy.deepcopy(role)
            role.args = [self.substitute(arg) for arg in role.args]
            role.env = {name: self.substitute(value) for name, value in role.env.items()}
            role.metadata = self._nested(role.metadata)
            return role

        def substitute(self, arg: str) -> str:
            """Return ``arg`` with the tokens replaced, once, from left to right."""
            if "${" not in arg:
                return arg
            return re.sub(_MACRO, lambda match: str(getattr(self, match.group(1))), arg)

        def _nested(self, value: Any) -> Any:
            if isinstance(value, str):
                return self.substitute(value)
            if isinstance(value, dict):
                return {key: self._nested(item) for key, item in value.items()}
            if isinstance(value, list):
                return [self._nested(item) for item in value]
            return value
