"""Creates an object of an S3 store that must not exist: a PUT with `If-None-Match: *`, which Arrow's file systems lack.

The request is signed here, by AWS Signature Version 4 ("Authenticating Requests", Amazon S3 API reference). It is sent
once. Whether a store heeds the condition is tried before it is relied on.
"""

from __future__ import annotations

import hashlib
import hmac
import http.client
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING
from urllib.parse import quote, urlsplit

if TYPE_CHECKING:
    from collections.abc import Mapping

CREATED, EXISTS, REFUSED = "created", "exists", "refused"
_TIMEOUT_S = 60
_CONFLICTS = frozenset({409, 412})
"""Another object is there, or is being created at this moment."""
_OK = 200
_ALGORITHM = "AWS4-HMAC-SHA256"


@dataclass(frozen=True, slots=True)
class Keys:
    """Whom a store knows the caller as."""

    access_key: str
    secret_key: str
    session_token: str = ""

    def __repr__(self) -> str:
        """Show no secret."""
        return "Keys(***)"


@dataclass(frozen=True, slots=True)
class Answer:
    """What a store said: one of `CREATED`, `EXISTS` and `REFUSED`, and its words."""

    outcome: str
    text: str = ""


class ConditionalPut:
    """Puts objects into buckets of one store."""

    def __init__(self, endpoint: str, region: str, keys: Keys) -> None:
        """Keep where it is; `endpoint` is a URL, or a host that speaks HTTPS."""
        place = urlsplit(endpoint if "://" in endpoint else f"https://{endpoint}")
        self._secure = place.scheme != "http"
        self._host = place.netloc
        self._region = region
        self._keys = keys

    def put_new(self, bucket: str, key: str, data: bytes) -> Answer:
        """Create an object, unless there is one of that key.

        Raises:
            OSError: no answer came; it may have been created.
        """
        path = f"/{bucket}/{quote(key, safe='/-_.~')}"
        headers = self._signed(path, data, time.gmtime())
        make = http.client.HTTPSConnection if self._secure else http.client.HTTPConnection
        connection = make(self._host, timeout=_TIMEOUT_S)
        try:
            connection.request("PUT", path, body=data, headers={**headers, "If-None-Match": "*"})
            answer = connection.getresponse()
            text = answer.read().decode("utf-8", "replace")
        except http.client.HTTPException as broken:
            message = f"the store's answer is none of HTTP: {broken!r}"
            raise OSError(message) from broken
        finally:
            connection.close()
        if answer.status == _OK:
            return Answer(CREATED)
        said = f"HTTP {answer.status}: {text[:500]}"
        if answer.status >= http.client.INTERNAL_SERVER_ERROR:
            raise OSError(said)
        return Answer(EXISTS if answer.status in _CONFLICTS else REFUSED, said)

    def _signed(self, path: str, data: bytes, now: time.struct_time) -> Mapping[str, str]:
        stamp, day = time.strftime("%Y%m%dT%H%M%SZ", now), time.strftime("%Y%m%d", now)
        digest = hashlib.sha256(data).hexdigest()
        headers = {"host": self._host, "x-amz-content-sha256": digest, "x-amz-date": stamp}
        if self._keys.session_token:
            headers["x-amz-security-token"] = self._keys.session_token
        names = ";".join(sorted(headers))
        lines = "".join(f"{name}:{headers[name]}\n" for name in sorted(headers))
        request = f"PUT\n{path}\n\n{lines}\n{names}\n{digest}"
        scope = f"{day}/{self._region}/s3/aws4_request"
        text = f"{_ALGORITHM}\n{stamp}\n{scope}\n{hashlib.sha256(request.encode()).hexdigest()}"
        key = f"AWS4{self._keys.secret_key}".encode()
        for part in (day, self._region, "s3", "aws4_request"):
            key = hmac.digest(key, part.encode(), "sha256")
        signature = hmac.digest(key, text.encode(), "sha256").hex()
        credential = f"Credential={self._keys.access_key}/{scope}"
        headers["Authorization"] = f"{_ALGORITHM} {credential}, SignedHeaders={names}, Signature={signature}"
        return headers
