"""The conformance suite for methods, here and in other packages: ``from fedrec.testing import MethodSuite``; needs pytest."""

from fedrec.testing.suite import MethodSuite, few

__all__ = ["MethodSuite", "few"]
