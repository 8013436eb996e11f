"""Stands in for the library, of which the official renderers read only the version."""

__version__ = "5.22.2"
