"""Safe files: one writer for everything. A file is there whole or not at all, whenever the power goes."""

import errno
import json
import os
import secrets
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

if TYPE_CHECKING:
    from torch import Tensor

UNFINISHED = ".part"
NAME_KEPT = 48  # letters of a file's name in its temporary name, which has to fit into 255 bytes
NOT_FOR_FOLDERS = (errno.EINVAL, errno.ENOTSUP, errno.EACCES, errno.EPERM, errno.EBADF, errno.EISDIR)


class WriteError(OSError):
    """A file cannot be written; the message names it, and nothing of it was left behind."""

    def __init__(self, path: Path, error: OSError) -> None:
        super().__init__(error.errno, error.strerror, str(path))
        self.path, self.reason = path, error.strerror or str(error)

    def __str__(self) -> str:
        remedy = {
            errno.ENOSPC: "; free some space and try again",
            errno.EDQUOT: "; your quota on this disk is used up",
            errno.EROFS: "; choose a folder that can be written to",
            errno.EACCES: "; choose a folder that you may write to",
            errno.ENOENT: "; its folder is gone",
        }.get(self.errno or 0, "")
        return f"cannot write {self.path}: {self.reason}{remedy}"


@contextmanager
def replace_file(path: Path) -> Iterator[BinaryIO]:
    """A file to write to, which takes the place of ``path`` when the block ends without an error.

    It has a temporary name until all of it is on the disk. Its folder has to exist; its mode is the usual one.
    """
    path = Path(path)
    temporary = path.with_name(f".{path.name[:NAME_KEPT]}-{secrets.token_hex(4)}{UNFINISHED}")
    try:
        with _create(temporary) as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
        sync_folder(path.parent)
    except WriteError:
        raise
    except OSError as error:
        raise WriteError(path, error) from error
    finally:
        with suppress(OSError):
            temporary.unlink(missing_ok=True)


def _create(path: Path) -> BinaryIO:
    # Not tempfile: its files can be read by their owner only, and keep that mode under their final name.
    return os.fdopen(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0), 0o666), "w+b")


def write_bytes(path: Path, content: bytes) -> None:
    """Write a file whole or not at all."""
    with replace_file(path) as file:
        file.write(content)


def write_text(path: Path, content: str) -> None:
    """Write a text as UTF-8, whole or not at all."""
    write_bytes(path, content.encode())


def write_json(path: Path, content: Any, indent: int = 2) -> None:
    """Write a JSON file whole or not at all."""
    try:
        encoded = json.dumps(content, indent=indent, ensure_ascii=False).encode()
    except UnicodeEncodeError:  # names of files may hold bytes that are no text
        encoded = json.dumps(content, indent=indent).encode()
    write_bytes(path, encoded + b"\n")


def set_aside(path: Path, why: str) -> Path:
    """Rename a file to what it was called and ``.why``, with a number if there is such a file; its new path."""
    for number in range(1, 10_000):
        target = path.with_name(f"{path.name}.{why}{f'-{number}' if number > 1 else ''}")
        if not target.exists():
            os.rename(path, target)
            return target
    raise ValueError(f"{path.parent} has thousands of files {path.name}.{why}; delete some")


def sync_folder(folder: Path) -> None:
    """A new name is on the disk only when its folder is; systems that cannot do that do it by themselves."""
    try:
        handle = os.open(folder, os.O_RDONLY)
    except PermissionError:
        return
    try:
        os.fsync(handle)
    except OSError as error:
        if error.errno not in NOT_FOR_FOLDERS:
            raise WriteError(folder, error) from error
    finally:
        os.close(handle)


def read_json(path: Path) -> Any:
    """What a JSON file says; a ValueError that names the file if it is none."""
    try:
        return json.loads(Path(path).read_bytes())
    except ValueError as error:
        raise ValueError(f"{path} is no JSON file: {error}") from error
    except RecursionError:
        raise ValueError(f"{path} is nested too deeply; no file of torchcaps is") from None


def read_object(path: Path, *keys: str) -> dict[str, Any]:
    """What a JSON file says that has to hold an object with these keys."""
    found = read_json(path)
    if not isinstance(found, dict):
        raise ValueError(f"{path} holds a JSON {_kind(found)}; expected an object")
    if missing := [key for key in keys if key not in found]:
        raise ValueError(f"{path} lacks {', '.join(map(repr, missing))}")
    return found


def _kind(value: Any) -> str:
    names = {list: "list", str: "string", bool: "truth value", int: "number", float: "number"}
    return names.get(type(value), "null")


def encode_tensors(tensors: "Mapping[str, Tensor]", metadata: Mapping[str, str] | None = None) -> bytes:
    """Tensors as the bytes of a safetensors file; equal tensors and metadata give equal bytes."""
    from safetensors.torch import save

    kept = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
    content = save(kept)
    if not metadata:
        return content
    # safetensors writes metadata in an order that differs from process to process.
    start = 8 + int.from_bytes(content[:8], "little")
    described = {"__metadata__": dict(sorted(metadata.items())), **json.loads(content[8:start])}
    header = json.dumps(described, separators=(",", ":"), ensure_ascii=False).encode()
    header += b" " * (-len(header) % 8)
    return len(header).to_bytes(8, "little") + header + content[start:]
