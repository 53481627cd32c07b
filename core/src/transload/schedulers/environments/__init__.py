"""Make the packages that a job needs once for their content, where it runs.

`recipe` reads the files that name packages, and `header` the inline metadata of a script. `provide`
connects runner and schedulers. `program` makes environments, here or on another machine. `wheels`
fetches what is installed where there is no index.
"""

from __future__ import annotations

from transload.plugins.lazy import lazy_names

TYPE_CHECKING = False
if TYPE_CHECKING:
    from transload.schedulers.environments.header import Header, read_header
    from transload.schedulers.environments.program import listed, remove
    from transload.schedulers.environments.provide import (
        MadeEnvironment,
        follow_making,
        make_here,
        order_to_make,
        program_text,
        provide_environments,
    )
    from transload.schedulers.environments.recipe import (
        Recipe,
        as_requirements,
        read_environment,
        recipe_of,
    )
    from transload.schedulers.environments.wheels import PLATFORM_FORM, WheelTarget, fetch_wheels

__all__ = [
    "PLATFORM_FORM",
    "Header",
    "MadeEnvironment",
    "Recipe",
    "WheelTarget",
    "as_requirements",
    "fetch_wheels",
    "follow_making",
    "listed",
    "make_here",
    "order_to_make",
    "program_text",
    "provide_environments",
    "read_environment",
    "read_header",
    "recipe_of",
    "remove",
]

# a job without packages of its own pays for none of this
__getattr__, __dir__, _ = lazy_names(
    __name__,
    {
        "header": "Header read_header",
        "program": "listed remove",
        "provide": (
            "MadeEnvironment follow_making make_here order_to_make program_text "
            "provide_environments"
        ),
        "recipe": "Recipe as_requirements read_environment recipe_of",
        "wheels": "PLATFORM_FORM WheelTarget fetch_wheels",
    },
)
