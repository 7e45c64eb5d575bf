"""Servers to begin with that do not exist, refuse or stay silent: one error names the key, each server and why."""

from __future__ import annotations

import time

import pytest

from lakeward.errors import EXIT_FAILED, ConfigError, SourceError
from lakeward_demo.fluss.process import free_port
from lakeward_source_fluss.rpc.client import FlussClient
from lakeward_source_fluss.source.connect import connect
from lakeward_source_fluss.source.options import FlussOptions
from lakeward_source_fluss_kit.server import FakeServer, quick_options

EXPECTED = "source.bootstrap: expected a server that can be reached, found none: Fluss server "


def error_of(bootstrap: str) -> SourceError:
    """Return what a source with these servers raises."""
    with pytest.raises(SourceError) as raised:
        connect(FlussOptions(bootstrap=bootstrap))
    return raised.value


@pytest.mark.parametrize(
    ("storage", "said"),
    [
        ({"secret_kay": "hush"}, r"source\.storage\.secret_kay: expected one of access_key, .*mean 'secret_key'"),
        ({"scheme": "htp"}, r"source\.storage\.scheme: expected one of https, http, found 'htp'.*Did you mean 'http'"),
    ],
)
def test_an_option_of_the_remote_data_directory_that_there_is_not_is_refused_before_a_file_is_read(
    storage: dict[str, str], said: str
) -> None:
    with pytest.raises(ConfigError, match=said) as refused:
        connect(FlussOptions(bootstrap="127.0.0.1:1", storage=storage))
    assert "hush" not in str(refused.value)


@pytest.mark.parametrize("host", ["nowhere.invalid", "fluss..example", f"{'long' * 20}.example"])
def test_a_host_name_that_does_not_resolve_is_named_with_the_key(host: str) -> None:
    error = error_of(f"{host}:9123")
    assert str(error).startswith(f"{EXPECTED}{host}:9123: the host name does not resolve (")
    assert (error.code, error.exit_code) == ("LW-300", EXIT_FAILED)


def test_a_port_where_nobody_listens_is_named_with_the_key() -> None:
    port = free_port()
    error = error_of(f"127.0.0.1:{port}")
    assert str(error) == f"{EXPECTED}127.0.0.1:{port}: connection refused"
    assert (error.code, error.exit_code) == ("LW-300", EXIT_FAILED)


def test_each_of_several_servers_is_named_once_with_its_own_reason() -> None:
    port = free_port()
    message = str(error_of(f"nowhere.invalid:9123,127.0.0.1:{port}"))
    assert message.startswith(f"{EXPECTED}nowhere.invalid:9123: the host name does not resolve (")
    assert message.endswith(f"; Fluss server 127.0.0.1:{port}: connection refused")


def test_a_server_that_says_nothing_is_given_up_in_time() -> None:
    with FakeServer(lambda _: b"") as server:
        options = quick_options(server, connect_timeout_s=2.0)
        began = time.monotonic()
        with pytest.raises(SourceError) as raised:
            FlussClient.connect(options)
        assert time.monotonic() - began < options.connect_timeout_s + 5
    assert str(raised.value) == f"{EXPECTED}{server.endpoint}: no connection within {options.connect_timeout_s:g} s"
