"""Apps as they are shown: values of secret-looking variables masked, secrets as references."""

from __future__ import annotations

import json
from typing import Any

from transload.specs import AppDef, masked_env


def app_json_masked(app: AppDef) -> dict[str, Any]:
    """Return an app as JSON values for display."""
    values: dict[str, Any] = json.loads(app.to_json())
    for role in values["roles"]:
        role["env"] = masked_env(role["env"])
    return values
