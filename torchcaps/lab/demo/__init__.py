"""A page that runs a trained network in the browser: a folder of static files, written by ``write_demo``."""

from torchcaps.lab.demo.building import write_demo

__all__ = ["write_demo"]
