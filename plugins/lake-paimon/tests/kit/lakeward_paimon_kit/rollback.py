"""What a person does to a table with Paimon's procedures."""

from __future__ import annotations

from pathlib import Path


def roll_back_to(location: str, snapshot_id: int) -> None:
    """Delete the snapshots after one, as `rollback_to` does, and say which is the latest."""
    folder = Path(location) / "snapshot"
    for file in folder.glob("snapshot-*"):
        if int(file.name.partition("-")[2]) > snapshot_id:
            file.unlink()
    (folder / "LATEST").write_text(str(snapshot_id), encoding="utf-8")
