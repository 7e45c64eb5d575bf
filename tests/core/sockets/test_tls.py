"""TLS between executors and the driver: who is trusted, who is refused, and that nobody hangs."""

from __future__ import annotations

import asyncio
import queue
import socket
import ssl
import threading
from contextlib import asynccontextmanager, contextmanager
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import msgspec
import pytest
import structlog
import trustme

from lakeward.clock import SystemClock
from lakeward.errors import ConfigError, ProtocolError
from lakeward.machines.transport.channel import Channel, ChannelKey
from lakeward.model.events import Cancel, Envelope, Register
from lakeward.model.settings import ServiceSettings
from lakeward.ports.transport import Address
from lakeward.sockets import SocketTransport, certificates
from lakeward.sockets import client as client_module
from lakeward.sockets.certificates import load_tls
from lakeward.sockets.client import open_stream
from lakeward.sockets.tls import TlsSocket
from lakeward_testing.waiting import LIMIT_S

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator
    from pathlib import Path

    from lakeward.ports import Connection

SECRET = b"s" * 32
KEY = ChannelKey("svc/1-1-1", 1, 0, 1)
REGISTER = Channel(KEY, "up").send(Register(subtask=0, host="here", pid=1, attempt=None))
ECHOES = 50
YESTERDAY = datetime.fromtimestamp(SystemClock().wall_ms() / 1000, UTC) - timedelta(days=1)


class Files:
    """Certificates of an authority, as files."""

    def __init__(self, folder: Path) -> None:
        self.authority = trustme.CA()
        self._folder = folder

    def settings(self, *names: str, **dates: datetime) -> ServiceSettings:
        """Write a certificate for these names, its key and its authority; return the section that names them."""
        issued = self.authority.issue_cert(*(names or ("127.0.0.1",)), **dates)  # type: ignore[arg-type] # dates
        cert, key, ca = (str(self._folder / name) for name in ("cert.pem", "key.pem", "ca.pem"))
        issued.cert_chain_pems[0].write_to_path(cert)
        issued.private_key_pem.write_to_path(key)
        self.authority.cert_pem.write_to_path(ca)
        return ServiceSettings(tls_cert=cert, tls_key=key, tls_ca=ca)


@pytest.fixture
def files(tmp_path: Path) -> Files:
    return Files(tmp_path)


class Echo:
    """Sends back whatever arrives."""

    def on_message(self, connection: Connection, envelope: Envelope) -> None:
        connection.send(envelope)

    def on_disconnect(self, connection: Connection, error: Exception) -> None:
        return


class Inbox:
    """Keeps what arrives on a subtask's connection, and why it ended."""

    def __init__(self) -> None:
        self.found: queue.Queue[Envelope | Exception] = queue.Queue()

    def on_message(self, connection: Connection, envelope: Envelope) -> None:
        self.found.put(envelope)

    def on_disconnect(self, connection: Connection, error: Exception) -> None:
        self.found.put(error)


@asynccontextmanager
async def listening(settings: ServiceSettings | None, **options: float) -> AsyncIterator[int]:
    tls = load_tls(settings, "") if settings is not None else None
    transport = SocketTransport(SystemClock(), tls=tls, **options)  # type: ignore[arg-type] # numbers
    listener = await transport.listen(Address("127.0.0.1", 0, SECRET), Echo())
    try:
        yield listener.port
    finally:
        await listener.close()


def answer_of(port: int, trusted: str, host: str = "127.0.0.1") -> Envelope | Exception:
    """Connect as a subtask; return what it gets first."""
    inbox = Inbox()
    connection = SocketTransport(SystemClock()).connect(
        Address(host, port, SECRET, trusted), REGISTER, inbox, after_s=0
    )
    try:
        return inbox.found.get(timeout=LIMIT_S)
    finally:
        connection.close()


def try_out(settings: ServiceSettings | None, trusted: str, **options: float) -> Envelope | Exception:
    async def test() -> Envelope | Exception:
        async with listening(settings, **options) as port:
            return await asyncio.to_thread(answer_of, port, trusted)

    return asyncio.run(test())


def trusted_by(settings: ServiceSettings) -> str:
    tls = load_tls(settings, "")
    assert tls is not None
    return tls.trusted


def test_a_subtask_registers_over_tls(files: Files) -> None:
    settings = files.settings()
    assert try_out(settings, trusted_by(settings)) == REGISTER


def test_a_certificate_of_its_own_is_enough(files: Files) -> None:
    settings = msgspec.structs.replace(files.settings(), tls_ca="")
    assert try_out(settings, trusted_by(settings)) == REGISTER


def test_nothing_readable_crosses_the_wire(files: Files) -> None:
    settings = files.settings()
    seen: list[bytes] = []

    async def test() -> None:
        async with listening(settings) as port:
            with recording(port, seen) as through:
                answer = await asyncio.to_thread(answer_of, through, trusted_by(settings))
        assert answer == REGISTER

    asyncio.run(test())
    assert b"svc/1-1-1" not in b"".join(seen)
    assert len(b"".join(seen)) > 1000


@contextmanager
def recording(port: int, seen: list[bytes]) -> Iterator[int]:
    """Pass one connection on to a port, and keep its bytes."""
    listener = socket.create_server(("127.0.0.1", 0))

    def copy(source: socket.socket, target: socket.socket) -> None:
        try:
            while data := source.recv(1 << 16):
                seen.append(data)
                target.sendall(data)
        except OSError:
            return

    def serve() -> None:
        with listener.accept()[0] as near, socket.create_connection(("127.0.0.1", port)) as far:
            back = threading.Thread(target=copy, args=(far, near))
            back.start()
            copy(near, far)
            far.shutdown(socket.SHUT_RDWR)
            back.join(LIMIT_S)

    thread = threading.Thread(target=serve)
    thread.start()
    yield listener.getsockname()[1]
    thread.join(LIMIT_S)
    listener.close()


def test_one_thread_sends_while_another_one_receives(files: Files) -> None:
    """Each piece has several records of TLS; none is lost, doubled or held up."""
    settings = files.settings()
    large = Channel(KEY, "up").send(Cancel(reason="r" * 300_000))

    async def test() -> list[Envelope | Exception]:
        async with listening(settings) as port:
            return await asyncio.to_thread(echoes, port)

    def echoes(port: int) -> list[Envelope | Exception]:
        inbox, address = Inbox(), Address("127.0.0.1", port, SECRET, trusted_by(settings))
        connection = SocketTransport(SystemClock()).connect(address, REGISTER, inbox, after_s=0)
        found = [inbox.found.get(timeout=LIMIT_S)]
        for _ in range(ECHOES):
            connection.send(large)
        found += [inbox.found.get(timeout=LIMIT_S) for _ in range(ECHOES)]
        connection.close()
        return found

    assert asyncio.run(test()) == [REGISTER, *([large] * ECHOES)]


def test_a_driver_of_another_authority_is_refused_by_name(files: Files, tmp_path: Path) -> None:
    other = trustme.CA().cert_pem.bytes().decode()
    with structlog.testing.capture_logs() as logs:
        answer = try_out(files.settings(), other)
    assert isinstance(answer, ProtocolError)
    assert "the driver's certificate is not to be trusted: unable to get local issuer certificate" in str(answer)
    assert "service.tls_ca" in str(answer)
    assert [log["reason"] for log in logs if log["event"] == "connection refused"] == [
        "no TLS connection with the peer: TLSV1_ALERT_UNKNOWN_CA"
    ]


def test_a_certificate_for_another_host_is_refused(files: Files) -> None:
    settings = files.settings("driver.internal")
    answer = try_out(settings, trusted_by(settings))
    assert isinstance(answer, ProtocolError)
    assert "127.0.0.1" in str(answer)


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client_module, "CONNECT_S", 0.5)


def test_a_plain_client_of_a_tls_driver_does_not_hang(files: Files, quick: None) -> None:
    answer = try_out(files.settings(), "")
    assert isinstance(answer, OSError)


def test_a_client_that_sends_no_handshake_is_put_out_with_a_reason(files: Files) -> None:
    async def test() -> bytes:
        async with listening(files.settings(), handshake_s=0.3) as port:
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            async with asyncio.timeout(LIMIT_S):
                end = await reader.read()
            writer.close()
            return end

    with structlog.testing.capture_logs() as logs:
        assert asyncio.run(test()) == b""
    reasons = [log["reason"] for log in logs if log["event"] == "connection refused"]
    assert reasons == ["no TLS handshake and no proof of the secret within 0.3 s"]


def test_a_handshake_that_is_not_done_takes_one_of_the_few_places(files: Files) -> None:
    async def test() -> bytes:
        async with listening(files.settings(), unproved=1) as port:
            first, first_writer = await asyncio.open_connection("127.0.0.1", port)
            _, second_writer = await asyncio.open_connection("127.0.0.1", port)
            async with asyncio.timeout(LIMIT_S):
                try:
                    return await first.read()
                except ConnectionError:
                    return b""
                finally:
                    first_writer.close()
                    second_writer.close()

    assert asyncio.run(test()) == b""


def test_a_tls_client_of_a_plain_driver_is_told_that_there_is_no_tls(files: Files) -> None:
    answer = try_out(None, trusted_by(files.settings()))
    assert isinstance(answer, ProtocolError)
    assert "no TLS with the peer at the coordinator's address" in str(answer)


def test_a_driver_that_never_answers_the_handshake_costs_a_client_its_time_limit_alone(
    files: Files, quick: None
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent, pytest.raises(TimeoutError):
        open_stream(Address("127.0.0.1", silent.getsockname()[1], SECRET, trusted_by(files.settings())), SystemClock())


def test_a_handshake_that_drips_in_costs_no_more(files: Files) -> None:
    """Each byte is in time for the socket; all of them together are not."""
    near, far = socket.socketpair()
    left = iter([1.0, -1.0])
    far.sendall(b"\x16\x03\x03")
    stream = TlsSocket(near, trusted_by(files.settings()), "127.0.0.1")
    with near, far, pytest.raises(TimeoutError, match="took too long for the TLS handshake"):
        stream.handshake(lambda: next(left))


def test_a_certificate_that_has_expired_is_found_before_the_start(files: Files) -> None:
    settings = files.settings("127.0.0.1", not_before=YESTERDAY - timedelta(days=1), not_after=YESTERDAY)
    with pytest.raises(ConfigError, match=r"service\.tls_cert: expected .* valid now.*certificate has expired"):
        load_tls(settings, "127.0.0.1")


def test_a_certificate_that_expires_while_the_driver_runs_is_refused_by_executors(
    files: Files, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = files.settings("127.0.0.1", not_before=YESTERDAY - timedelta(days=1), not_after=YESTERDAY)
    monkeypatch.setattr(certificates, "_try_out", lambda *_: None)  # it was valid when the driver started
    answer = try_out(settings, trusted_by(settings))
    assert isinstance(answer, ProtocolError)
    assert "certificate has expired" in str(answer)


def without_key(settings: ServiceSettings) -> ServiceSettings:
    return msgspec.structs.replace(settings, tls_key="")


def without_cert(settings: ServiceSettings) -> ServiceSettings:
    return msgspec.structs.replace(settings, tls_cert="")


def with_missing_authority(settings: ServiceSettings) -> ServiceSettings:
    return msgspec.structs.replace(settings, tls_ca="nowhere.pem")


def with_a_key_as_authority(settings: ServiceSettings) -> ServiceSettings:
    return msgspec.structs.replace(settings, tls_ca=settings.tls_key)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (without_key, r"service\.tls_cert: expected PEM files of a certificate and of its private key"),
        (without_cert, r"service\.tls_cert: expected a certificate \(PEM file\), because service\.tls_key is set"),
        (with_missing_authority, r"service\.tls_ca: expected a readable PEM file, found 'nowhere\.pem'"),
        (with_a_key_as_authority, r"service\.tls_ca: expected a file with certificates in PEM format"),
    ],
)
def test_files_that_do_not_fit_are_named(
    files: Files, wrong: Callable[[ServiceSettings], ServiceSettings], message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        load_tls(wrong(files.settings()), "127.0.0.1")


def test_an_authority_that_does_not_vouch_for_the_certificate_is_found_before_the_start(
    files: Files, tmp_path: Path
) -> None:
    settings = files.settings()
    trustme.CA().cert_pem.write_to_path(settings.tls_ca)
    with pytest.raises(ConfigError, match=r"service\.tls_cert: .*vouched for by service\.tls_ca .*issuer"):
        load_tls(settings, "127.0.0.1")


def test_a_certificate_for_another_host_is_found_before_the_start(files: Files) -> None:
    with pytest.raises(ConfigError, match=r"service\.tls_cert: expected .* for driver\.internal"):
        load_tls(files.settings("other.internal"), "driver.internal")


def test_a_private_key_in_the_file_of_the_certificate_does_not_go_to_executors(files: Files, tmp_path: Path) -> None:
    both = tmp_path / "both.pem"
    issued = files.authority.issue_cert("127.0.0.1")
    issued.private_key_and_cert_chain_pem.write_to_path(str(both))
    trusted = trusted_by(ServiceSettings(tls_cert=str(both)))
    assert "PRIVATE KEY" in both.read_text(encoding="ascii")
    assert "PRIVATE KEY" not in trusted
    assert try_out(ServiceSettings(tls_cert=str(both)), trusted) == REGISTER


def test_a_key_with_a_password_is_refused_and_nobody_is_asked_for_it(files: Files) -> None:
    settings = files.settings()
    encrypt(settings.tls_key)
    with pytest.raises(ConfigError, match=r"service\.tls_key: expected PEM files .* which has no password"):
        load_tls(settings, "127.0.0.1")


def encrypt(file: str) -> None:
    from cryptography.hazmat.primitives import serialization  # noqa: PLC0415 - trustme brings it

    with open(file, "rb") as plain:  # noqa: PTH123
        key = serialization.load_pem_private_key(plain.read(), None)
    words = serialization.BestAvailableEncryption(b"hush")
    form = serialization.PrivateFormat.TraditionalOpenSSL
    with open(file, "wb") as encrypted:  # noqa: PTH123
        encrypted.write(key.private_bytes(serialization.Encoding.PEM, form, words))


def test_without_a_certificate_there_is_no_tls() -> None:
    assert load_tls(ServiceSettings(), "") is None


def test_old_versions_of_tls_are_refused(files: Files) -> None:
    tls = load_tls(files.settings(), "")
    assert tls is not None
    assert tls.context.minimum_version >= ssl.TLSVersion.TLSv1_2
