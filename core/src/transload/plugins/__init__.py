"""Define every hook (`hookspecs`), and find and keep the plugins that implement them."""

from __future__ import annotations

from transload.plugins.lazy import lazy_names

TYPE_CHECKING = False
if TYPE_CHECKING:
    from transload.plugins.events import *
    from transload.plugins.manager import *

# lazy: a package that only wants `lazy_names` pays for no manager, and a plugin that only marks its
# hooks for no spec
__getattr__, __dir__, __all__ = lazy_names(
    __name__,
    {
        "events": "AppEvent",
        "lazy": "lazy_names",
        "manager": "GROUP PluginInfo Plugins get_plugins hookimpl load_attribute third_party_installed",
    },
)
