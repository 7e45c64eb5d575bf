"""The configuration file that `lakeward config init` writes."""

from __future__ import annotations

_STARTER = """\
# Lakeward. All keys, their units and defaults: `lakeward config show`. Relative paths are relative to this file.

[service]
name = "{name}"            # a restart under the same name continues where the last one stopped

[source]
type = "embedded"
path = "store"             # the store's directory; `lakeward embedded create` makes it

[lake]
type = "iceberg"
warehouse = "warehouse"

[lease]
backend = "fluss"          # `lakeward plugins` lists what is installed

[checkpoint]
root = "lakeward-state"    # state, checkpoints and history; on a cluster a place that all machines reach

[spark]
master = "local[2]"        # or spark://HOST:7077, yarn, k8s://...
# conf = {{ "spark.driver.memory" = "2g" }}

# [observe]
# status_port = 8080       # the status page
# on_status = "https://hooks.example/lakeward"  # who is told of each change of a table's status

# [tables."db.*"]          # rules for some tables; the most specific pattern wins, key by key
# include = true
# freshness_s = 10.0
# lake_partition = ["day(ts)"]
"""


def starter(name: str) -> str:
    """Write a whole configuration file, TOML, of a service of this name."""
    return _STARTER.format(name=name)
