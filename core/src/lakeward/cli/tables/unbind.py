"""`lakeward tables unbind`."""

from __future__ import annotations

import click

from lakeward.cli.invocation import Invocation, pass_invocation, with_common_options
from lakeward.errors import UsageError
from lakeward.model.bindings import ServiceBinding
from lakeward.observe.services import see_service_named
from lakeward.storage.binding_files import BindingFiles
from lakeward.storage.small_files import SmallFiles


@click.command("unbind")
@click.argument("service", metavar="SERVICE")
@with_common_options
@pass_invocation
def unbind(invocation: Invocation, *, service: str) -> None:
    """Let other services tier the tables that are bound to SERVICE, which is gone for good.

    SERVICE must not run. It binds its tables again when it is started again with `service.tables`.
    """
    address = invocation.load().settings.checkpoint.address
    files = BindingFiles(SmallFiles(address))
    bound = files.read().of(service)
    if (seen := see_service_named(address, service)).running:
        message = f"{service}: expected a service that does not run, found one that is {seen.message}"
        raise UsageError(message)
    files.write(ServiceBinding(service))
    patterns = sorted(bound.patterns)
    message = f"No longer bound to {service}: {', '.join(patterns)}." if patterns else f"{service} binds no tables."
    invocation.output.show({"service": service, "unbound": patterns}, message)
