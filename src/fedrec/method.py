"""All that an author of a method needs, in one place: ``from fedrec.method import ...``. See docs/add-a-method.md."""

from fedrec.data.training import TrainingView
from fedrec.errors import ConfigError
from fedrec.federation.config import LearnedConfig, MethodConfig, PartialConfig, SampledConfig, Width
from fedrec.federation.ledger import Ledger
from fedrec.federation.method import EachMethod, Method, SumMethod
from fedrec.federation.payload import (
    Derived,
    Gram,
    Part,
    Payload,
    RowUpdate,
    State,
    Table,
    Upload,
    row_update,
    table,
    tensor,
    touched_rows,
)
from fedrec.federation.result import Result, ResultTable
from fedrec.federation.search import Options, Range, Space
from fedrec.federation.store import ClientState
from fedrec.federation.task import Task
from fedrec.federation.total import Total
from fedrec.local.factorisation import MatrixFactorisation
from fedrec.local.fit import Batch, Memory, Params, Schedule, Step, fit, lookup, put_rows, take_rows
from fedrec.local.mlp import FlatMLP
from fedrec.local.problem import LocalProblem, LossOnly
from fedrec.parts.aggregation import Rule, add_mean, add_rows, step_mean, step_rows
from fedrec.parts.merged_method import merged
from fedrec.parts.scorers import broadcast, by_chunks, dot
from fedrec.parts.table_method import AveragedTableMethod, Fit, TableMethod
from fedrec.sampling import streams
from fedrec.sampling.samples import Samples

__all__ = [
    "AveragedTableMethod",
    "Batch",
    "ClientState",
    "ConfigError",
    "Derived",
    "EachMethod",
    "Fit",
    "FlatMLP",
    "Gram",
    "LearnedConfig",
    "Ledger",
    "LocalProblem",
    "LossOnly",
    "MatrixFactorisation",
    "Memory",
    "Method",
    "MethodConfig",
    "Options",
    "Params",
    "Part",
    "PartialConfig",
    "Payload",
    "Range",
    "Result",
    "ResultTable",
    "RowUpdate",
    "Rule",
    "SampledConfig",
    "Samples",
    "Schedule",
    "Space",
    "State",
    "Step",
    "SumMethod",
    "Table",
    "TableMethod",
    "Task",
    "Total",
    "TrainingView",
    "Upload",
    "Width",
    "add_mean",
    "add_rows",
    "broadcast",
    "by_chunks",
    "dot",
    "fit",
    "lookup",
    "merged",
    "put_rows",
    "row_update",
    "step_mean",
    "step_rows",
    "streams",
    "table",
    "take_rows",
    "tensor",
    "touched_rows",
]
