"""What keeps strangers out of Spark: its ports answer those alone that know the secret of its application.

Without it, whoever reaches the port of the block manager reads what Spark broadcasts, with the address and the token of
PySpark's accumulator server, which unpickles what it is sent: so a stranger runs code as the user of the service. The
loopback address keeps out other machines, not other users of this one (spark.md, "Who may ask Spark").
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from lakeward.ports import CheckResult

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

AUTHENTICATE = "spark.authenticate"


def local_options(conf: Mapping[str, str]) -> dict[str, str]:
    """Return what is set for a master that is a part of the driver, beside what the user sets."""
    # A master in the driver makes the secret itself, and tells nobody.
    options = {AUTHENTICATE: "true"}
    if _is_on((options | dict(conf)).get):
        # Who asks is known by AES and not by SASL, whose MD5 some Javas refuse; nothing is sent between processes here.
        options["spark.network.crypto.enabled"] = "true"
    return options


def authentication_check(option: Callable[[str], str | None], *, local: bool) -> CheckResult:
    """Say whether Spark asks who speaks to it; never a failure: a cluster may keep strangers out by its network.

    `option` returns an option of Spark, None where it is not set. If `local`, the master is a part of the driver.
    """
    what = "spark authentication"
    if _is_on(option):
        return CheckResult(what, ok=True, message="on: Spark's ports answer those alone that know its secret")
    who = "any user of this machine" if local else "whoever reaches the ports of the driver and of its executors"
    message = f"off: {who} can run code as the user of the service"
    action = (
        f'take spark.conf."{AUTHENTICATE}" out'
        if local
        else f'set spark.conf."{AUTHENTICATE}" = "true", as "Who may ask Spark" of "Run on a cluster" says'
    )
    return CheckResult(what, ok=True, message=message, action=action)


def _is_on(option: Callable[[str], str | None]) -> bool:
    return (option(AUTHENTICATE) or "false").strip().lower() == "true"
