"""Exact ranks, metrics, significance and the leak audit."""

from fedrec.evaluation.audit import audit
from fedrec.evaluation.evaluator import Evaluation, Evaluator
from fedrec.evaluation.groups import by_group, coverage, gini, sparsity_groups
from fedrec.evaluation.significance import compare, holm, paired_bootstrap, wilcoxon

__all__ = [
    "Evaluation",
    "Evaluator",
    "audit",
    "by_group",
    "compare",
    "coverage",
    "gini",
    "holm",
    "paired_bootstrap",
    "sparsity_groups",
    "wilcoxon",
]
