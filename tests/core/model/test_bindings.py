from __future__ import annotations

from lakeward.model.bindings import Bindings, ServiceBinding
from lakeward.model.tables import TablePath

ORDERS = TablePath("sales", "orders")
BIG, SMALL = ServiceBinding("big", {"sales.*": 2}), ServiceBinding("small")


def test_a_bound_table_is_served_by_one_service_alone() -> None:
    bindings = Bindings((BIG, SMALL))
    assert bindings.bound_to(ORDERS) == "big"
    assert (bindings.serves("big", ORDERS), bindings.serves("small", ORDERS)) == (True, False)


def test_other_tables_are_served_by_any_service() -> None:
    bindings, other = Bindings((BIG, SMALL)), TablePath("web", "clicks")
    assert bindings.bound_to(other) == ""
    assert all(bindings.serves(name, other) for name in ("big", "small", "unknown"))


def test_a_service_that_does_not_share_serves_only_its_own_tables() -> None:
    bindings = Bindings((ServiceBinding("big", {"sales.*": 2}, shared=False),))
    assert bindings.serves("big", ORDERS)
    assert not bindings.serves("big", TablePath("web", "clicks"))


def test_the_most_specific_pattern_of_all_services_wins() -> None:
    bindings = Bindings((BIG, ServiceBinding("small", {"sales.orders": 9})))
    assert bindings.bound_to(ORDERS) == "small"
    assert bindings.bound_to(TablePath("sales", "items")) == "big"


def test_of_two_equally_specific_patterns_the_one_that_was_bound_first_wins() -> None:
    bindings = Bindings((ServiceBinding("a", {"*.orders": 5}), ServiceBinding("b", {"sales.*": 5})))
    assert bindings.bound_to(ORDERS) == "a"  # the longer one
    tied = {"a": {"sales.order*": 5}, "b": {"sales.*rders": 4}}
    services = tuple(ServiceBinding(name, patterns) for name, patterns in tied.items())
    assert Bindings(services).bound_to(ORDERS) == Bindings(services[::-1]).bound_to(ORDERS) == "b"
