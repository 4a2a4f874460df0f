"""One process at a time owns a run folder: a lock that ends with the process that holds it, however that ends."""

import errno
import os
import socket
from contextlib import suppress
from pathlib import Path

from torchcaps.files import WriteError

NAME = ".lock"
WITHOUT_LOCKS = (errno.ENOLCK, errno.ENOTSUP, errno.ENOSYS, errno.EINVAL)  # file systems that have none
TRIES = 100


class RunInUseError(ValueError):
    """Another process trains in this run folder."""


class FolderGoneError(ValueError):
    """The run folder was deleted or replaced while training."""


class Ownership:
    """The lock of a run folder, held from its making until ``close``."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.path = folder, folder / NAME
        self.handle = self._acquire()

    def check(self) -> None:
        """That the folder is still the one which was locked."""
        if not self._is_ours(self.handle):
            raise FolderGoneError(
                f"{self.folder} was deleted, moved or replaced while training, so nothing more can be saved there; "
                f"put it back and go on with --resume, or start again"
            )

    def close(self) -> None:
        """Give the folder back. The file goes while it is locked: who waits for it notices, and makes a new one."""
        if self._is_ours(self.handle):
            with suppress(OSError):
                self.path.unlink()
        os.close(self.handle)

    def _acquire(self) -> int:
        for _ in range(TRIES):
            try:
                handle = os.open(self.path, os.O_RDWR | os.O_CREAT, 0o666)
            except OSError as error:
                raise WriteError(self.path, error) from error
            try:
                if not _lock(handle):
                    raise RunInUseError(self._describe_holder(handle))
                if self._is_ours(handle):  # else its holder deleted it meanwhile
                    os.ftruncate(handle, 0)
                    os.write(handle, f"{os.getpid()} {socket.gethostname()}\n".encode())
                    return handle
            except OSError as error:
                os.close(handle)
                raise WriteError(self.path, error) from error
            except BaseException:
                os.close(handle)
                raise
            os.close(handle)
        raise RunInUseError(f"{self.folder} changes hands all the time; other processes train in it")

    def _is_ours(self, handle: int) -> bool:
        try:
            return os.path.samestat(os.fstat(handle), os.stat(self.path))
        except (FileNotFoundError, NotADirectoryError):
            return False

    def _describe_holder(self, handle: int) -> str:
        number, _, host = os.read(handle, 200).decode("utf-8", "replace").strip().partition(" ")
        elsewhere = f" on {host}" if host and host != socket.gethostname() else ""
        return (
            f"{self.folder} is in use by process {number or 'unknown'}{elsewhere}, which trains in it; wait for its "
            f"end, stop it, or give another folder with --out"
        )


def _lock(handle: int) -> bool:
    """Whether the lock could be had; where there are no locks, everybody gets one."""
    try:
        import fcntl
    except ImportError:  # Windows
        return True
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError as error:
        if error.errno not in WITHOUT_LOCKS:
            raise
    return True
