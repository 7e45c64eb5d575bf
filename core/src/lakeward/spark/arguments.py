"""What may be an argument of a call of Spark's Java: nothing of NumPy, so that a driver loads neither it nor pandas.

PySpark looks at each argument whether it is an array or a number of NumPy. For that it imports its helpers of tests,
which import pandas: 2.2 s of processor time of each start, and 50 MB. No call of a service has such an argument.
"""

from __future__ import annotations

from py4j import protocol
from pyspark.sql import types

_CONVERTERS = ("NumpyScalarConverter", "NumpyArrayConverter")


def forget_numpy() -> None:
    """Let this process give Java no values of NumPy any more."""
    of_numpy = tuple(getattr(types, name) for name in _CONVERTERS if hasattr(types, name))
    protocol.INPUT_CONVERTER[:] = [one for one in protocol.INPUT_CONVERTER if not isinstance(one, of_numpy)]
