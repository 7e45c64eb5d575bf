"""The address of an object store with what is needed to reach it, as one text: `s3://KEY:SECRET@bucket/path?...`.

One text goes to every process that opens the store: the service, its commands and each subtask. It holds secrets, so
it is never shown without `mask_uri`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.parse import urlencode

if TYPE_CHECKING:
    from collections.abc import Mapping

SCHEME = "s3://"
OPTIONS = (
    "access_key",
    "secret_key",
    "session_token",
    "endpoint_override",
    "region",
    "scheme",
    "role_arn",
    "external_id",
    "session_name",
    "tls_ca_file_path",
)
"""What can be said of an S3 store: the names are those of `pyarrow.fs.S3FileSystem`."""
SCHEMES = ("https", "http")
"""Values of the option `scheme`."""


def address_of(root: str, options: Mapping[str, str]) -> str:
    """Add options, names of `OPTIONS` to values, to the address of a store; a directory has none.

    Without options the root itself is returned.
    """
    if not options:
        return root
    return f"{root}{'&' if '?' in root else '?'}{urlencode(dict(options))}"
