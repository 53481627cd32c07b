"""Define every hook (`hookspecs`), and find and keep the plugins that implement them."""

from __future__ import annotations

from transload.plugins.lazy import lazy_names

TYPE_CHECKING = False
if TYPE_CHECKING:
    from transload.plugins.events import *
    from transload.plugins.manager import *

# a package that only wants `lazy_names` loads no manager, and a plugin that only marks its hooks
# loads no specification of hooks
__getattr__, __dir__, __all__ = lazy_names(
    __name__,
    {
        "distributions": "install_command",
        "events": "AppEvent",
        "lazy": "lazy_names",
        "manager": "GROUP PluginInfo Plugins get_plugins hookimpl load_attribute third_party_installed",
    },
)
