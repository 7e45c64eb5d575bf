from __future__ import annotations

import ssl
from dataclasses import replace
from pathlib import Path

import pytest
import trustme

from lakeward.errors import SourceError
from lakeward_source_fluss.rpc.client import FlussClient
from lakeward_source_fluss.rpc.options import ConnectOptions, SaslPlain, Tls
from lakeward_source_fluss.wire.apis import ApiKey
from lakeward_source_fluss.wire.errors import AuthenticationError, ServerUnreachableError, TlsError
from lakeward_source_fluss.wire.messages import (
    AuthenticateRequest,
    AuthenticateResponse,
    ErrorResponse,
    ListDatabasesRequest,
    ListDatabasesResponse,
)
from lakeward_source_fluss_kit.server import Answer, Call, FakeServer, Recorded, quick_options

FRAMES = Path(__file__).with_name("data") / "fluss-frames.jsonl"
BOB = SaslPlain("bob", "bobpw")


class Guarded:
    """Answers as a real server with a SASL listener does."""

    def __init__(self) -> None:
        self.recorded = Recorded.read(FRAMES)
        self.let_in: set[int] = set()

    def __call__(self, call: Call) -> Answer:
        if call.api == ApiKey.API_VERSIONS:
            return None
        if call.api == ApiKey.AUTHENTICATE:
            if call.read(AuthenticateRequest).token == b"\0bob\0bobpw":
                self.let_in.add(call.connection)
            return self.recorded(call)
        if call.connection not in self.let_in:
            return ErrorResponse(error_code=46, error_message="The connection has not completed authentication yet.")
        return ListDatabasesResponse(database_name=("d",)) if call.api == ApiKey.LIST_DATABASES else None


def as_user(server: FakeServer, user: SaslPlain | None) -> ConnectOptions:
    return replace(quick_options(server), sasl=user)


def test_the_right_password_lets_in() -> None:
    with FakeServer(Guarded()) as server, FlussClient.connect(as_user(server, BOB)) as client:
        assert client.call_any(ListDatabasesRequest()).database_name == ("d",)
    assert [call.api for call in server.calls[:3]] == [
        ApiKey.API_VERSIONS,
        ApiKey.AUTHENTICATE,
        ApiKey.GET_METADATA,
    ]


def test_every_new_connection_authenticates() -> None:
    with FakeServer(Guarded()) as server, FlussClient.connect(as_user(server, BOB)) as client:
        server.hang_up()
        client.call_any(ListDatabasesRequest())
        assert len(server.asked(ApiKey.AUTHENTICATE)) == 2


def test_a_wrong_password_is_said_at_once_and_not_shown() -> None:
    with (
        FakeServer(Guarded()) as server,
        pytest.raises(AuthenticationError, match="Invalid username or password") as raised,
    ):
        FlussClient.connect(as_user(server, SaslPlain("bob", "wrong")))
    assert "wrong" not in str(raised.value)
    assert len(server.asked(ApiKey.AUTHENTICATE)) == 1


def test_no_password_where_one_is_wanted_is_said() -> None:
    with FakeServer(Guarded()) as server, pytest.raises(AuthenticationError, match="has not completed authentication"):
        FlussClient.connect(as_user(server, None))


def test_an_authentication_that_asks_to_be_repeated_is() -> None:
    asked: list[Call] = []

    def answer(call: Call) -> Answer:
        if call.api != ApiKey.AUTHENTICATE:
            return None
        asked.append(call)
        return ErrorResponse(error_code=51) if len(asked) < 3 else AuthenticateResponse(challenge=b"")

    with FakeServer(answer) as server, FlussClient.connect(as_user(server, BOB)):
        assert {call.connection for call in asked} == {0}
    assert len(asked) == 3


def test_a_further_challenge_is_refused() -> None:
    def answer(call: Call) -> Answer:
        return AuthenticateResponse(challenge=b"more") if call.api == ApiKey.AUTHENTICATE else None

    with FakeServer(answer) as server, pytest.raises(AuthenticationError, match="no further challenge"):
        FlussClient.connect(as_user(server, BOB))


def test_the_password_is_in_no_text() -> None:
    with FakeServer(Guarded()) as server:
        assert "bobpw" not in repr(as_user(server, BOB))


class Certificates:
    """An authority of our own, and one certificate."""

    def __init__(self, directory: Path, name: str) -> None:
        authority = trustme.CA()
        self.ca_file = str(directory / "ca.pem")
        authority.cert_pem.write_to_path(self.ca_file)
        self.server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        issued = authority.issue_cert(name)
        issued.configure_cert(self.server)
        self.own_file = str(directory / "own.pem")
        issued.private_key_and_cert_chain_pem.write_to_path(self.own_file)


def over_tls(server: FakeServer, tls: Tls | None, connect_timeout_s: float = 20.0) -> ConnectOptions:
    return replace(quick_options(server, connect_timeout_s=connect_timeout_s), tls=tls)


def test_calls_go_over_tls(tmp_path: Path) -> None:
    certificates = Certificates(tmp_path, "127.0.0.1")
    tls = Tls(ca_file=certificates.ca_file)
    with (
        FakeServer(lambda _: None, tls=certificates.server) as server,
        FlussClient.connect(over_tls(server, tls)) as client,
    ):
        assert client.coordinator_connection_id != 0


def test_an_unknown_authority_is_not_trusted(tmp_path: Path) -> None:
    certificates = Certificates(tmp_path, "127.0.0.1")
    with FakeServer(lambda _: None, tls=certificates.server) as server, pytest.raises(TlsError, match="certificate"):
        FlussClient.connect(over_tls(server, Tls()))


def test_a_certificate_for_another_name_is_not_trusted_unless_that_name_was_meant(tmp_path: Path) -> None:
    certificates = Certificates(tmp_path, "fluss.example")
    with FakeServer(lambda _: None, tls=certificates.server) as server:
        with pytest.raises(TlsError, match="certificate"):
            FlussClient.connect(over_tls(server, Tls(ca_file=certificates.ca_file)))
        meant = Tls(ca_file=certificates.ca_file, server_name="fluss.example")
        FlussClient.connect(over_tls(server, meant)).close()


def test_a_server_that_wants_a_certificate_gets_ours(tmp_path: Path) -> None:
    certificates = Certificates(tmp_path, "127.0.0.1")
    certificates.server.verify_mode = ssl.CERT_REQUIRED
    certificates.server.load_verify_locations(certificates.ca_file)
    with FakeServer(lambda _: None, tls=certificates.server) as server:
        tls = Tls(ca_file=certificates.ca_file, cert_file=certificates.own_file)
        FlussClient.connect(over_tls(server, tls)).close()
        with pytest.raises(SourceError):
            FlussClient.connect(over_tls(server, Tls(ca_file=certificates.ca_file)))


def test_tls_to_a_server_without_is_an_error_and_no_hang(tmp_path: Path) -> None:
    certificates = Certificates(tmp_path, "127.0.0.1")
    garbage = bytes.fromhex("0000000c0208ffffffffffffffffff01")
    with FakeServer(lambda _: garbage) as server, pytest.raises((TlsError, ServerUnreachableError)):
        FlussClient.connect(over_tls(server, Tls(ca_file=certificates.ca_file), connect_timeout_s=1.0))


def test_no_tls_to_a_server_with_is_an_error_and_no_hang(tmp_path: Path) -> None:
    certificates = Certificates(tmp_path, "127.0.0.1")
    with FakeServer(lambda _: None, tls=certificates.server) as server, pytest.raises(ServerUnreachableError):
        FlussClient.connect(over_tls(server, None, connect_timeout_s=1.0))


def test_a_missing_authority_file_is_named(tmp_path: Path) -> None:
    missing = str(tmp_path / "none.pem")
    with FakeServer(lambda _: None) as server, pytest.raises(SourceError, match=r"none\.pem"):
        FlussClient.connect(over_tls(server, Tls(ca_file=missing)))
