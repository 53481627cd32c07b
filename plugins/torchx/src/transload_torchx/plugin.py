"""The hook implementations, named by the entry point."""

from __future__ import annotations

from transload.plugins import hookimpl
from transload.plugins.hookspecs import Register

__all__ = ["transload_cli_commands", "transload_components", "transload_named_resources"]


@hookimpl
def transload_cli_commands(register: Register) -> None:
    """Register ``transload migrate``, and the commands that have another name in TorchX."""
    register("migrate", "transload_torchx.cli:command")
    register("builtins", "transload.cli.commands.components:components")
    register("configure", "transload.cli.commands.installed:config")
    register("runopts", "transload.cli.commands.installed:info")


@hookimpl
def transload_components(register: Register) -> None:
    """Register TorchX's components that the core does not have."""
    register("utils.copy", "transload_torchx.utils:copy")
    register("utils.touch", "transload_torchx.utils:touch")


@hookimpl
def transload_named_resources(register: Register) -> None:
    """Register the instance types of AWS, such as ``aws_p4d.24xlarge``."""
    from transload_torchx.named_resources_aws import NAMED_RESOURCES

    for name, factory in NAMED_RESOURCES.items():
        register(name, factory)
