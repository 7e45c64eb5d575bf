"""A plugin of mypy: `dataclasses.replace` takes no struct of msgspec, which its stubs do not say."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mypy.plugin import Plugin
from mypy.types import Instance, get_proper_type

if TYPE_CHECKING:
    from collections.abc import Callable

    from mypy.plugin import FunctionSigContext
    from mypy.types import FunctionLike

STRUCT = "msgspec.Struct"


class RefusesStructs(Plugin):
    """Looks at each call of `dataclasses.replace`."""

    def get_function_signature_hook(self, fullname: str) -> Callable[[FunctionSigContext], FunctionLike] | None:
        """Return what checks a call of this function."""
        return _check if fullname == "dataclasses.replace" else None


def _check(context: FunctionSigContext) -> FunctionLike:
    for value in context.args[0]:
        kind = get_proper_type(context.api.get_expression_type(value))
        if isinstance(kind, Instance) and any(base.fullname == STRUCT for base in kind.type.mro):
            context.api.fail(f"{kind.type.name} is a struct: use msgspec.structs.replace", context.context)
    return context.default_signature


def plugin(_version: str) -> type[Plugin]:
    """Return what mypy is to load."""
    return RefusesStructs
