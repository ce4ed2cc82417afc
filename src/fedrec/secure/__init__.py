"""Secure aggregation: a server learns the sum of what parties hold, and nothing of any one of them.

After Bonawitz et al., "Practical secure aggregation for privacy-preserving machine learning" (CCS 2017), against a server
that follows the protocol and is curious. What crosses a wire is bytes, so any transport carries it: ``Server`` and
``Participant`` are state machines that take and give messages, and ``secure_sum`` runs all of them in one process.
"""
