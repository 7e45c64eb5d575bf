from __future__ import annotations

from typing import Any

from lakeward.model.bindings import ServiceBinding
from lakeward.model.object_store import address_of
from lakeward.storage.binding_files import BindingFiles
from lakeward.storage.small_files import SmallFiles

BIG = ServiceBinding("big", {"sales.*": 7}, shared=False)


def test_bindings_of_an_object_store_are_read_by_all(s3: Any) -> None:  # noqa: ANN401 - the fixture's server
    root = address_of(f"s3://{s3.new_bucket()}/state", s3.options)
    BindingFiles(SmallFiles(root)).write(BIG)
    files = BindingFiles(SmallFiles(root))
    files.write(ServiceBinding("small", {"web.*": 8}))
    assert files.services() == ("big", "small")
    assert files.read().services == (BIG, ServiceBinding("small", {"web.*": 8}))
    files.write(ServiceBinding("big"))
    assert files.read().of("big") == ServiceBinding("big")


def test_a_root_that_is_not_there_yet_has_no_bindings(tmp_path: Any) -> None:  # noqa: ANN401 - a path
    assert BindingFiles(SmallFiles(str(tmp_path / "state"))).read().services == ()
