"""Replace macros, which are tokens in a role, before a replica starts."""

from __future__ import annotations

import copy
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

    from transload.specs.app import Role

_MACRO = r"\$\{(img_root|app_id|replica_id|rank0_env|output_dir)\}"


def substitute(text: str, values: Mapping[str, str]) -> str:
    """Return a text with the tokens of these names replaced, once, from left to right.

    Other tokens stay as they are.
    """
    if "${" not in text:
        return text
    return re.sub(_MACRO, lambda match: values.get(match[1], match[0]), text)


def replace_macros(role: Role, values: Mapping[str, str]) -> Role:
    """Return a deep copy of ``role`` with the tokens of these names replaced.

    They are replaced in args, env values and metadata.
    """
    role = copy.deepcopy(role)
    role.args = [substitute(arg, values) for arg in role.args]
    role.env = {name: substitute(value, values) for name, value in role.env.items()}
    role.metadata = _nested(role.metadata, values)
    return role


def _nested(value: Any, values: Mapping[str, str]) -> Any:
    if isinstance(value, str):
        return substitute(value, values)
    if isinstance(value, dict):
        return {key: _nested(item, values) for key, item in value.items()}
    if isinstance(value, list):
        return [_nested(item, values) for item in value]
    return value


class macros:  # noqa: N801 - the field's established name
    """Tokens for ``Role.args``, the values of ``Role.env`` and ``Role.metadata``.

    - ``img_root``: root folder of the unpacked image.
    - ``app_id``: id of the job as its scheduler knows it.
    - ``replica_id``: number of the replica within its role, from 0. A replica started again keeps
      it.
    - ``rank0_env``: *name* of the environment variable that holds the host name of replica 0 of the
      first role.
    - ``output_dir``: folder of the job's own for files that it makes (``TRANSLOAD_OUTPUT_DIR``).

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
            """Return a deep copy of ``role`` with the tokens replaced.

            They are replaced in args, env values and metadata.
            """
            return replace_macros(role, vars(self))

        def substitute(self, arg: str) -> str:
            """Return ``arg`` with the tokens replaced, once, from left to right."""
            return substitute(arg, vars(self))
