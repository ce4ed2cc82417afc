"""Blend: ``method`` (settings and which weights are tried), ``trainer`` (what trains the parts and adds up their scores)."""

from fedrec.methods.blend.method import Blend, BlendConfig, Part

__all__ = ["Blend", "BlendConfig", "Part"]
