"""Tables in CSV and Parquet files, read by pyarrow: columns of numbers, and one to predict."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ridgeline.data.dataset import TensorDataset
from ridgeline.data.optional import need
from ridgeline.errors import InputFileError, unreadable


def read_table(path: str | Path) -> Any:
    """A pyarrow table; the ending of the name says whether it is CSV or Parquet."""
    path = Path(path)
    arrow = need("pyarrow", "pyarrow", "reading tables")
    try:
        if path.suffix in (".parquet", ".pq"):
            return need("pyarrow.parquet", "pyarrow", "reading tables").read_table(path)
        if path.suffix in (".csv", ".tsv"):
            csv = need("pyarrow.csv", "pyarrow", "reading tables")
            mark = "\t" if path.suffix == ".tsv" else ","
            return csv.read_csv(path, parse_options=csv.ParseOptions(delimiter=mark))
    except (OSError, arrow.ArrowInvalid) as error:
        raise unreadable(f"the table {path}", error) from error
    raise InputFileError(
        f"{path} is neither CSV nor Parquet by its name", help="endings: .csv .tsv .parquet .pq"
    )


class TableDataset(TensorDataset):
    """Rows of a table: features as float32 [columns], and the target column where one is named.

    Whole numbers and text in the target become classes (int64); `classes` holds their values in
    order. Without `features` all columns but the target are taken.
    """

    def __init__(
        self, path: str | Path, target: str | None = None, features: Sequence[str] | None = None
    ) -> None:
        table = read_table(path)
        names = list(table.column_names)
        for name in [*(features or ()), *([target] if target is not None else [])]:
            if name not in names:
                raise InputFileError(
                    f"{path} has no column {name!r}", note=f"its columns: {', '.join(names)}"
                )
        self.features = list(features) if features else [n for n in names if n != target]
        if not self.features or not table.num_rows:
            raise InputFileError(f"{path} has no {'rows' if self.features else 'feature columns'}")
        columns = [_numbers(table.column(name), name, path) for name in self.features]
        arrays: list[NDArray[Any]] = [np.stack(columns, 1).astype(np.float32)]
        self.classes: list[Any] = []
        if target is not None:
            values = _values(table.column(target), target, path)
            if values.dtype.kind == "f":
                arrays.append(values.astype(np.float32))
            else:
                kinds, numbers = np.unique(values, return_inverse=True)
                self.classes = kinds.tolist()
                arrays.append(numbers.astype(np.int64))
        super().__init__(*arrays)


def _values(column: Any, name: str, path: str | Path) -> NDArray[Any]:
    if column.null_count:
        raise InputFileError(
            f"column {name!r} of {path} has {column.null_count} missing values",
            help="fill or drop those rows first",
        )
    values: NDArray[Any] = column.to_numpy()
    return values.astype(str) if values.dtype == object else values


def _numbers(column: Any, name: str, path: str | Path) -> NDArray[Any]:
    values = _values(column, name, path)
    if values.dtype.kind not in "biuf":
        raise InputFileError(
            f"column {name!r} of {path} holds {column.type}, not numbers",
            help="name the columns to use with features=",
        )
    return values
