"""The page's addresses, as an ASGI application. Whatever fails in it is answered with 500 and harms no round."""

from __future__ import annotations

import asyncio
import re
from dataclasses import dataclass
from functools import lru_cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import structlog
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.middleware.gzip import GZipMiddleware
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from lakeward.observe.extend import clock_time, count, is_loopback, meaning_of, seconds, size
from lakeward_page.other_services import OthersSeen
from lakeward_page.round_page import find_round, round_view
from lakeward_page.table_list import Query
from lakeward_page.table_page import table_view
from lakeward_page.tables_view import Badge
from lakeward_page.view import frame, masked_others, other_frame, other_view, service_address, status_view

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from prometheus_client import CollectorRegistry
    from starlette.requests import Request

    from lakeward.model.status import ServiceReport
    from lakeward.observe.extend import LiveStatus
    from lakeward_page.other_services import OtherServices
    from lakeward_page.recent_problems import RecentProblems
    from lakeward_page.view import Frame

    Parameters = Mapping[str, str]
    """Of the address that is asked for."""
    Answer = Callable[[Parameters], Response]

_HERE = Path(__file__).parent
_HEADERS = {
    "Content-Security-Policy": "default-src 'none'; style-src 'self'; script-src 'self'; connect-src 'self'; "
    "img-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-store",
}
_STATIC = {"page.css": "text/css", "page.js": "text/javascript", "icon.svg": "image/svg+xml"}
_HOST = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]+)(?::[0-9]{1,5})?", re.ASCII)
_log = structlog.get_logger("lakeward.page")


@dataclass(frozen=True, slots=True)
class PageContent:
    """What the page is made of."""

    service: str
    live: LiveStatus
    registry: CollectorRegistry
    problems: RecentProblems
    others: OtherServices | None = None
    """Knows the other services of the state root, None where nobody does."""


class PageApp:
    """The answers. Each is made on the page's own thread, from values that nobody changes any more."""

    def __init__(self, content: PageContent) -> None:
        """Read the templates as they are asked for."""
        self._content = content
        loader = FileSystemLoader(_HERE / "templates")
        environment = Environment(
            loader=loader, autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
        )
        writers: dict[str, Callable[[Any], str]]
        writers = {"clock_time": clock_time, "number": count, "seconds": seconds, "size": size}
        environment.filters |= {name: partial(_or_dash, write) for name, write in writers.items()}
        environment.globals |= {"meaning_of": meaning_of, "hot": Badge("hot", "warn")}
        # Hundreds of tables have a handful of badges.
        environment.globals["badge"] = lru_cache(maxsize=256)(
            environment.get_template("badge.html").module.badge  # type: ignore[attr-defined]  # a macro of the template
        )
        self._environment = environment
        self._static = {name: (_HERE / "static" / name).read_bytes() for name in _STATIC}
        self._trouble = ""

    def asgi(self, *, local: bool = False) -> Starlette:
        """Return the application; a `local` one refuses requests for another host than this machine.

        Else any website that somebody on this machine visits could read the page, by giving its own name the address
        127.0.0.1.
        """
        answers: dict[str, Answer] = {"/": self._page, "/status.json": self._status, "/metrics": self._metrics}
        answers |= {"/tables/{path:path}": self._table, "/rounds/{name:path}": self._round}
        answers |= {"/services/{name:path}": self._service}
        answers |= {f"/{name}": self._file_of(name) for name in _STATIC}
        made = {path: _on_a_thread(answer) for path, answer in answers.items()}
        # These two wait for no thread: whoever asks them would restart a service whose page is slow.
        made |= {"/healthz": self._health, "/readyz": self._ready}
        routes = [Route(path, self._guarded(each, local=local), methods=["GET"]) for path, each in made.items()]
        return Starlette(routes=routes, middleware=[Middleware(GZipMiddleware, minimum_size=1000, compresslevel=1)])

    def _guarded(
        self, answer: Callable[[Parameters], Awaitable[Response]], *, local: bool
    ) -> Callable[[Request], Awaitable[Response]]:
        """Return the endpoint of an answer; an error in it is logged once, and again only when it is another one."""

        async def endpoint(request: Request) -> Response:
            if local and (refused := _refused(request.headers.get("host", ""))) is not None:
                return refused
            try:
                response = await answer({**request.query_params, **request.path_params})
            except Exception as error:  # noqa: BLE001 - whatever is wrong with the page, the service goes on
                path, reason = request.url.path, f"{type(error).__name__}: {error}"
                if reason != self._trouble:
                    _log.warning("the status page cannot be shown", page=path, reason=reason, exc_info=error)
                self._trouble = reason
                text = "This page cannot be shown because of an error in it; the service's log has the reason.\n"
                response = PlainTextResponse(text, status_code=500)
            response.headers.update(_HEADERS)
            return response

        return endpoint

    def _page(self, parameters: Parameters) -> Response:
        content = self._content
        report, problems = content.live.report, content.problems.newest()
        view = status_view(content.live, report, problems, self._others(), query=Query.of(parameters))
        return self._shown("status.html", view, report)

    def _service(self, parameters: Parameters) -> Response:
        name, now_ms = parameters["name"], self._content.live.wall_ms
        one = next((one for one in self._others().services if one.name == name), None)
        if one is None:
            why = "No other service of this name has reported under checkpoint.root."
            return self._missing(f"service {name}", why, self._content.live.report)
        view = other_view(one, now_ms, Query.of(parameters, service_address(name)))
        return self._rendered("service.html", view, other_frame(one, now_ms))

    def _others(self) -> OthersSeen:
        others = self._content.others
        mask = self._content.problems.without_secrets
        return OthersSeen() if others is None else masked_others(others.newest(), mask)

    def _table(self, parameters: Parameters) -> Response:
        report, path = self._content.live.report, parameters["path"]
        view = table_view(report, path, self._content.live)
        if view is None:
            return self._missing(path, "The service has not reported a table of this name.", report)
        return self._shown("table.html", view, report)

    def _round(self, parameters: Parameters) -> Response:
        report, name = self._content.live.report, parameters["name"]
        found = find_round(self._content.live, name)
        if found is None:
            why = "No round of this name runs, or is among those that are kept of each table."
            return self._missing(f"round {name}", why, report)
        return self._shown("round.html", round_view(*found, report), report)

    def _missing(self, what: str, why: str, report: ServiceReport | None) -> Response:
        answer = self._shown("missing.html", {"what": what, "why": why}, report)
        answer.status_code = 404
        return answer

    def _shown(self, template: str, view: object, report: ServiceReport | None) -> Response:
        return self._rendered(template, view, frame(self._content.service, self._content.live, report))

    def _rendered(self, template: str, view: object, around: Frame) -> Response:
        text = self._environment.get_template(template).render(view=view, frame=around, home=self._content.service)
        return Response(text, media_type="text/html")

    def _status(self, _: Parameters) -> Response:
        report = self._content.live.report
        if report is None:
            return PlainTextResponse("The service has not reported yet.\n", status_code=503)
        return Response(msgspec.json.format(msgspec.json.encode(report), indent=1), media_type="application/json")

    def _metrics(self, _: Parameters) -> Response:
        return Response(generate_latest(self._content.registry), media_type=CONTENT_TYPE_LATEST)

    async def _health(self, _: Parameters) -> Response:
        trouble = self._content.live.trouble()
        return PlainTextResponse(f"{trouble or 'ok'}\n", status_code=503 if trouble else 200)

    async def _ready(self, _: Parameters) -> Response:
        missing = self._content.live.missing()
        return PlainTextResponse("\n".join(missing or ("ok",)) + "\n", status_code=503 if missing else 200)

    def _file_of(self, name: str) -> Answer:
        return lambda _: Response(self._static[name], media_type=_STATIC[name])


def _on_a_thread(answer: Answer) -> Callable[[Parameters], Awaitable[Response]]:
    return lambda parameters: asyncio.to_thread(answer, parameters)


def _or_dash(write: Callable[[Any], str], value: float | None) -> str:
    return "\u2013" if value is None else write(value)


def _refused(header: str) -> Response | None:
    """Return what is answered to a request that asks for another host than this machine, or for none; else None."""
    host = _HOST.fullmatch(header)
    if header and host is None:
        text = "The header Host is malformed: expected a name or an address, and perhaps a port.\n"
        return PlainTextResponse(text, status_code=400, headers=_HEADERS)
    if host is None or not is_loopback(host[1].strip("[]")):
        text = "This page is for this machine alone: ask for localhost, or set observe.status_host.\n"
        return PlainTextResponse(text, status_code=421, headers=_HEADERS)
    return None
