"""What writers put into a Parquet file, and when they encode it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lakeward.errors import StorageError
from lakeward.model.tables import Change
from lakeward_lake_paimon.datafile import ParquetFile
from lakeward_lake_paimon.local_storage import LocalStorage
from lakeward_testing.lake_tables import COLUMNS, TieringRound, incarnation, key_table, log_split, source_batch

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from lakeward.model.results import LakeFile
    from lakeward.ports import Lake
    from lakeward_lake_paimon.plugin import PaimonLakePlugin

COUNT = 20_000


def test_columns_have_a_dictionary_if_their_values_repeat_and_nested_ones_always(tmp_path: Path) -> None:
    numbers = list(range(COUNT))
    columns = {
        "id": pa.array(numbers),
        "flag": pa.array([one % 2 == 0 for one in numbers]),
        "color": pa.array([f"color {one % 100}" for one in numbers]),
        "hash": pa.array([f"{one:040x}" for one in numbers]),
        "seldom": pa.array([one if one % 2 else None for one in numbers]),
        "nothing": pa.nulls(COUNT, pa.int64()),
        "place": pa.array([{"x": one, "many": [one]} for one in numbers]),
    }
    rows = pa.table(columns)
    file = ParquetFile(LocalStorage(), str(tmp_path / "file.parquet"), rows.schema, {})
    file.write(rows)
    file.close()
    group = file.footer.row_group(0)
    leaves = [group.column(number) for number in range(group.num_columns)]
    assert [one.path_in_schema for one in leaves if one.has_dictionary_page] == [
        "color",
        "nothing",
        "place.x",
        "place.many.list.element",
    ]
    assert pq.read_table(file.path).equals(rows)


class FullStorage(LocalStorage):
    """A disk that has room for one file."""

    def open_output(self, path: str) -> pa.NativeFile:
        """See `Storage`."""
        if path.endswith("second.parquet"):
            message = f"{path}: no space left"
            raise StorageError(message)
        return super().open_output(path)


def test_where_the_second_of_two_files_cannot_be_created_none_is_left(tmp_path: Path) -> None:
    first, second = (str(tmp_path / f"{name}.parquet") for name in ("first", "second"))
    with pytest.raises(StorageError, match="no space left"):
        ParquetFile(FullStorage(), first, COLUMNS, {}, second)
    assert [*tmp_path.iterdir()] == []


def written(plugin: PaimonLakePlugin, lake: Lake, changes: Sequence[int]) -> dict[str, LakeFile]:
    """Return the files of a round of a row for each change, of keys of their own, by their kinds."""
    tiering = TieringRound(plugin, lake, key_table(), incarnation())
    rows = [{"id": number} for number in range(len(changes))]
    tiering.write(log_split(tiering.table), [source_batch(COLUMNS, rows, changes=changes)])
    return {file.kind: file for file in tiering.files}


def test_where_each_change_is_a_row_the_changelog_is_the_same_file(plugin: PaimonLakePlugin, lake: Lake) -> None:
    files = written(plugin, lake, [Change.INSERT, Change.UPDATE_AFTER, Change.DELETE])
    data, changelog = (LocalStorage().read(files[kind].path) for kind in ("data", "changelog"))
    assert data == changelog
    assert files["data"].path != files["changelog"].path
    assert [files[kind].rows for kind in ("data", "changelog")] == [3, 3]


def test_rows_from_before_an_update_are_in_the_changelog_alone(plugin: PaimonLakePlugin, lake: Lake) -> None:
    files = written(plugin, lake, [Change.UPDATE_BEFORE, Change.UPDATE_AFTER])
    assert [files[kind].rows for kind in ("data", "changelog")] == [1, 2]


@pytest.mark.parametrize("refused", ["data", "changelog"])
def test_neither_of_two_files_is_left_if_one_is_refused(
    plugin: PaimonLakePlugin, lake: Lake, monkeypatch: pytest.MonkeyPatch, refused: str
) -> None:
    opened = LocalStorage.open_output

    def refusing(storage: LocalStorage, path: str) -> pa.NativeFile:
        file = opened(storage, path)
        if path.rpartition("/")[2].startswith(f"{refused}-"):
            file.close()
        return file

    monkeypatch.setattr(LocalStorage, "open_output", refusing)
    with pytest.raises(ValueError, match="closed"):
        written(plugin, lake, [Change.INSERT])
    head = lake.head(key_table().path)
    assert head is not None
    assert [path for path in LocalStorage().list(head.location) if path.endswith(".parquet")] == []
