"""Compiles the native kernels into the wheel where there is a C compiler; without one the wheel is pure Python."""

import importlib.util
import sysconfig
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class KernelBuildHook(BuildHookInterface):
    """For wheels, editable ones included: those link to the checkout, where the library then lies."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        path = Path(self.root) / "torchcaps" / "kernels" / "build.py"
        spec = importlib.util.spec_from_file_location("build_kernels", path)
        assert spec is not None
        assert spec.loader is not None
        build = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(build)
        problem = "" if build.is_up_to_date() else build.compile_kernels()
        if problem:
            build.LIBRARY.unlink(missing_ok=True)  # one of another source
            self.app.display_warning(f"torchcaps without native kernels, slower on CPUs: {problem}")
            return
        build_data["artifacts"].append(str(build.LIBRARY.relative_to(self.root)))
        build_data["pure_python"] = False
        # The library knows nothing of Python: any version of it will do, on this kind of machine.
        build_data["tag"] = tag_of(sysconfig.get_platform())


def tag_of(platform: str) -> str:
    """The tag of a wheel for any Python on this kind of machine."""
    return f"py3-none-{platform.replace('-', '_').replace('.', '_')}"
