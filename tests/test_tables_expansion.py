"""The size of a compressed file once it is decompressed is known before it is."""

from __future__ import annotations

from io import BytesIO
from typing import Any

import numpy as np
import polars as pl
import pyarrow.feather
import pyarrow.parquet
import pytest

from logsparse.serving.tables import expanded
from serving import hourly

# Without types.
ARROW: Any = pyarrow.parquet
FEATHER: Any = pyarrow.feather
TEXT = pl.DataFrame({"a": ["x" * 1_000_000, "y" * 500_000], "b": [1.0, 2.0]})


def blob(write: Any, *arguments: Any, **settings: Any) -> bytes:
    buffer = BytesIO()
    write(*arguments, buffer, **settings)
    return buffer.getvalue()


@pytest.mark.parametrize("compression", ["zstd", "snappy", "lz4", "gzip", "uncompressed"])
def test_pages_of_parquet_are_added_up(compression: str) -> None:
    found = expanded(blob(TEXT.write_parquet, compression=compression), "parquet")
    assert 1_500_000 < found < 1_501_000


@pytest.mark.parametrize("version", ["1.0", "2.0"])
def test_so_are_those_of_pyarrow_and_of_many_row_groups(version: str) -> None:
    table = hourly().to_arrow()
    written = blob(lambda t, f: ARROW.write_table(t, f, data_page_version=version, row_group_size=50), table)
    meta = ARROW.read_metadata(BytesIO(written))
    columns = [meta.row_group(g).column(c) for g in range(meta.num_row_groups) for c in range(meta.num_columns)]
    # The metadata count headers too.
    assert 0.3 * sum(c.total_uncompressed_size for c in columns) < expanded(written, "parquet")
    assert expanded(written, "parquet") <= sum(c.total_uncompressed_size for c in columns)


@pytest.mark.parametrize("compression", ["zstd", "lz4"])
def test_buffers_of_feather_are_added_up_with_dictionaries(compression: Any) -> None:
    assert 1_500_000 < expanded(blob(TEXT.write_ipc, compression=compression), "feather") < 1_501_000
    table = TEXT.with_columns(pl.col("a").cast(pl.Categorical)).to_arrow()
    written = blob(lambda t, f: FEATHER.write_feather(t, f, compression=compression), table)
    assert 1_500_000 < expanded(written, "feather") < 1_501_000


def test_what_is_not_compressed_does_not_expand() -> None:
    assert expanded(blob(TEXT.write_ipc, compression="uncompressed"), "feather") == 0


@pytest.mark.parametrize("kind", ["parquet", "feather"])
def test_damaged_headers_raise_value_error_and_nothing_else(kind: str) -> None:
    write = hourly().write_parquet if kind == "parquet" else hourly().write_ipc
    whole, rng = blob(write, compression="zstd"), np.random.default_rng(0)
    for _ in range(500):
        wrong = bytearray(whole)
        for place in rng.integers(0, len(wrong), 4):
            wrong[place] = rng.integers(256)
        cut = bytes(wrong[: rng.integers(1, len(wrong))]) if rng.random() < 0.3 else bytes(wrong)
        try:
            expanded(cut, kind)
        except ValueError as error:
            assert str(error)  # noqa: PT017
