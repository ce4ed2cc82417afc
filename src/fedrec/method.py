"""All that an author of a method needs, in one place: ``from fedrec.method import ...``. See docs/add-a-method.md."""

from fedrec.federation.config import LearnedConfig, MethodConfig, PartialConfig, SampledConfig
from fedrec.federation.ledger import Ledger
from fedrec.federation.method import EachMethod, Method, SumMethod
from fedrec.federation.payload import Derived, Payload, RowUpdate, State, Table, Upload, row_update, table, tensor
from fedrec.federation.result import Result, ResultTable
from fedrec.federation.store import ClientState
from fedrec.federation.task import Task
from fedrec.federation.total import Total
from fedrec.local.factorisation import MatrixFactorisation
from fedrec.local.fit import Batch, Params, Schedule, Step, fit, lookup, put_rows, take_rows
from fedrec.local.problem import LocalProblem, LossOnly
from fedrec.parts.aggregation import Rule, add_mean, add_rows, step_mean, step_rows
from fedrec.parts.scorers import broadcast, dot
from fedrec.parts.table_method import AveragedTableMethod, TableMethod
from fedrec.sampling.samples import Samples
from fedrec.sampling.streams import Purpose

__all__ = [
    "AveragedTableMethod",
    "Batch",
    "ClientState",
    "Derived",
    "EachMethod",
    "LearnedConfig",
    "Ledger",
    "LocalProblem",
    "LossOnly",
    "MatrixFactorisation",
    "Method",
    "MethodConfig",
    "Params",
    "PartialConfig",
    "Payload",
    "Purpose",
    "Result",
    "ResultTable",
    "RowUpdate",
    "Rule",
    "SampledConfig",
    "Samples",
    "Schedule",
    "State",
    "Step",
    "SumMethod",
    "Table",
    "TableMethod",
    "Task",
    "Total",
    "Upload",
    "add_mean",
    "add_rows",
    "broadcast",
    "dot",
    "fit",
    "lookup",
    "put_rows",
    "row_update",
    "step_mean",
    "step_rows",
    "table",
    "take_rows",
    "tensor",
]
