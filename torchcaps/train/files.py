"""Files that are there whole or not at all, whenever the power goes."""

import json
import os
from pathlib import Path
from typing import Any


def write_bytes(path: Path, content: bytes) -> None:
    """Write under another name, to the disk, and only then give it its name."""
    half_written = path.with_name(path.name + ".part")
    with half_written.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    os.replace(half_written, path)
    sync_directory(path.parent)


def write_json(path: Path, content: Any) -> None:
    write_bytes(path, (json.dumps(content, indent=2, ensure_ascii=False) + "\n").encode())


def read_json(path: Path) -> Any:
    """What a JSON file says; a ValueError that names the file if it is none."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ValueError(f"{path} is no JSON file: {error}") from error


def sync_directory(folder: Path) -> None:
    """A new name is on the disk only when its folder is; systems that cannot do that do it by themselves."""
    try:
        handle = os.open(folder, os.O_RDONLY)
    except OSError:
        return
    try:
        os.fsync(handle)
    except OSError:
        pass
    finally:
        os.close(handle)
