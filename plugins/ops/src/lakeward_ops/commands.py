"""The commands of this package: `lakeward --help` lists them without importing what they need."""

from __future__ import annotations

from lakeward.cli.extend import Lazy

deadletters = Lazy("lakeward_ops.deadletters", "deadletters", "Look at rows that did not fit a lake table.")
doctor = Lazy("lakeward_ops.doctor.command", "doctor", "Check what a service needs in order to run.")
new = Lazy("lakeward_ops.new_plugin.command", "new", "Write a plugin to start from: lease, wrapper, lake or source.")
plan = Lazy("lakeward_ops.plan.command", "plan", "Show what the next rounds would do, and change nothing.")
query = Lazy("lakeward_ops.query.command", "query", "Query a lake table by DuckDB, without a catalog.")
upkeep = Lazy("lakeward_ops.upkeep", "upkeep", "Show or ask for upkeep of lake tables, such as a compaction.")
tables_upgrade = Lazy("lakeward_ops.upgrade", "upgrade", "Move a lake table to a newer version of its format.")
verify = Lazy("lakeward_ops.verify.command", "verify", "Compare a lake table with its source, row by row.")
