"""csv files: ids stay text, times are read year first, numbers may have a decimal comma."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from logsparse.data.frame import to_panel
from logsparse.errors import DataError


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "data.csv"


def test_ids_stay_as_they_are_written(path: Path) -> None:
    ids = ["007", "7", "1.10", "NA", "None", "null", " a", "1e5"]
    path.write_text(
        "shop,ds,y\n" + "".join(f"{name},{step},NA\n{name},{step + 1},1\n" for name in ids for step in (1, 3))
    )
    panel = to_panel(path, id_col="shop")
    assert panel.ids == tuple(ids)
    np.testing.assert_array_equal(panel[0], np.array([1, np.nan, 1], np.float32))


def test_an_empty_id_is_still_missing(path: Path) -> None:
    path.write_text("unique_id,ds,y\n,1,1\n")
    with pytest.raises(DataError, match="Every row must have an id in 'unique_id'"):
        to_panel(path)


def test_row_numbers_written_by_pandas_are_not_a_series(path: Path) -> None:
    wide = pd.DataFrame({"ds": pd.date_range("2024-01-01", periods=5), "a": 1.0, "b": 2.0})
    wide.to_csv(path)
    assert to_panel(path).ids == ("a", "b")
    assert to_panel(pd.read_csv(path)).ids == ("a", "b")
    wide.set_axis(range(1, 6)).to_csv(path)
    assert to_panel(path).ids == ("a", "b")
    wide[wide.index % 2 == 0].to_csv(path)
    assert to_panel(path).ids == ("a", "b")


def test_an_unnamed_column_of_times_is_the_time_column(path: Path) -> None:
    pd.DataFrame({"a": 1.0, "b": 2.0}, index=pd.date_range("2024-01-01", periods=5)).to_csv(path)
    panel = to_panel(path)
    assert (panel.ids, str(panel.freq)) == (("a", "b"), "d")


def test_the_electricity_file_of_uci_is_read_as_it_comes(tmp_path: Path) -> None:
    path = tmp_path / "LD2011_2014.txt"
    rows = [f'"2011-01-01 {i // 4:02d}:{i % 4 * 15:02d}:00";0;{i},5' for i in range(1, 9)]
    path.write_text("\n".join(['"";"MT_001";"MT_002"', *rows]))
    panel = to_panel(path)
    assert (panel.ids, str(panel.freq), panel.origin.layout) == (("MT_001", "MT_002"), "15min", "wide")
    assert panel[1].tolist() == [i + 0.5 for i in range(1, 9)]


def test_a_decimal_comma_is_found_wherever_it_first_comes(path: Path) -> None:
    for late in (3, 300, 30_000):
        rows = "".join(f"a;{i};{i}\n" for i in range(late))
        path.write_text(f"unique_id;ds;y\n{rows}a;{late};2,5\n")
        assert to_panel(path)[0][-2:].tolist() == [late - 1, 2.5]


def test_a_comma_in_text_is_not_a_decimal_point(path: Path) -> None:
    path.write_text("unique_id;ds;y;note\na;1;1.5;at 3,4 km\na;2;2.5;x\n")
    assert to_panel(path)[0].tolist() == [1.5, 2.5]


def test_blank_lines_are_skipped(path: Path) -> None:
    path.write_text("unique_id,ds,y\na,1,1\n\na,2,2\n\n\n")
    assert to_panel(path).lengths.tolist() == [2]


@pytest.mark.parametrize("rows", [0, 200_000])
def test_a_file_that_is_not_utf8_is_refused_as_such(rows: int, path: Path) -> None:
    text = "".join(f"a,{i},1\n" for i in range(rows))
    path.write_bytes(f"unique_id,ds,y\n{text}M\xfcller,1,1\n".encode("latin-1"))
    with pytest.raises(DataError, match=r"data.csv: text that is not UTF-8. Hint: save it as UTF-8"):
        to_panel(path)


def test_a_byte_order_mark_is_not_part_of_the_first_name(path: Path) -> None:
    path.write_bytes(b"\xef\xbb\xbfunique_id,ds,y\n007,1,1\n007,2,1\n")
    assert to_panel(path).ids == ("007",)


def test_a_duplicate_column_is_refused_if_it_is_used(path: Path) -> None:
    path.write_text("unique_id,ds,y,y\na,1,1,2\na,2,1,2\n")
    with pytest.raises(DataError, match=r"The column 'y' must be unique. Got two columns of that name. Hint: drop"):
        to_panel(path)
    path.write_text("unique_id,ds,y,z,z\na,1,1,2,3\na,2,1,2,3\n")
    assert to_panel(path).lengths.tolist() == [2]


def test_times_across_a_daylight_saving_change_are_the_same_instants_as_in_a_frame(path: Path) -> None:
    times = pd.date_range("2024-03-30", periods=60, freq="h", tz="Europe/Berlin")
    frame = pd.DataFrame({"unique_id": "a", "ds": times, "y": 1.0})
    frame.to_csv(path, index=False)
    read, made = to_panel(path), to_panel(frame)
    assert (read.starts.tolist(), read.lengths.tolist()) == (made.starts.tolist(), made.lengths.tolist())


def test_a_header_longer_than_any_name_is_refused(path: Path) -> None:
    path.write_text(f"unique_id,ds,y,{'x' * 200_000}\na,1,1,1\n")
    with pytest.raises(DataError, match=r"data.csv: a first line that is not a header \(field larger than field limit"):
        to_panel(path)


@pytest.mark.parametrize("late", [9_999, 10_000, 10_001, 25_000])
@pytest.mark.parametrize("separator", [",", ";"])
def test_a_column_may_begin_with_any_number_of_empty_cells(separator: str, late: int, path: Path) -> None:
    number = "2.5" if separator == "," else "2,5"
    rows = [("a", i, i, "") for i in range(late)] + [("a", late, late, number), ("a", late + 1, 1000, 7)]
    path.write_text("".join(f"{separator.join(map(str, row))}\n" for row in [("unique_id", "ds", "y", "heat"), *rows]))
    panel = to_panel(path, covariates=["heat"])
    assert panel.covariates["heat"][-2:].tolist() == [2.5, 7]
    assert panel[0][-2:].tolist() == [late, 1000]


def test_a_whole_series_may_begin_after_row_10000(path: Path) -> None:
    path.write_text("ds,x,z\n" + "".join(f"{i},1,{'' if i < 12_000 else i}\n" for i in range(12_010)))
    panel = to_panel(path)
    assert (panel.starts.tolist(), panel[1].tolist()) == ([0, 12_000], list(range(12_000, 12_010)))


@pytest.mark.parametrize(
    ("separator", "fields", "expected"),
    [
        (",", ['"10,897"', "998", '"1,234,567"'], [10897, 998, 1234567]),
        (",", ['"$10,897.50"', "$998", "$0.25"], [10897.5, 998, 0.25]),
        (",", ['"1.234,50"', '"0,25"', '"3,00"'], [1234.5, 0.25, 3]),
        (";", ["1.234,50 €", "0,25 €", "998 €"], [1234.5, 0.25, 998]),
        (";", ["1.234.567", "10.897", "998"], [1234567, 10897, 998]),
        (";", ["1 234,5", "-1\u202f234", "EUR 5"], [1234.5, -1234, 5]),
        ("\t", ["1'234.50", "998.10", "2"], [1234.5, 998.1, 2]),
        (";", ["#N/A", "n/a", "1.234,5"], [None, None, 1234.5]),
    ],
)
def test_numbers_of_spreadsheets_are_read(
    path: Path, separator: str, fields: list[str], expected: list[float | None]
) -> None:
    rows = [f"2024-01-0{day}{separator}{field}" for day, field in enumerate(fields, start=1)]
    path.write_text("\n".join([f"day{separator}sales", f"2023-12-31{separator}1", *rows]))
    values = [1, *(np.nan if value is None else value for value in expected)]
    np.testing.assert_allclose(to_panel(path)[0], values, rtol=1e-6)


def test_a_point_among_whole_numbers_below_a_thousand_separates_thousands_and_is_told(
    path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path.write_text("day;sales\n2024-01-01;998\n2024-01-02;1.002\n2024-01-03;\n2024-01-04;1.004\n")
    np.testing.assert_array_equal(to_panel(path)[0], np.array([998, 1002, np.nan, 1004], np.float32))
    assert caplog.messages == ["'sales': the point in 1.002 is read as that of thousands, since others have no point"]


def test_three_decimals_everywhere_stay_decimals_and_are_told(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path.write_text("day;sales\n2024-01-01;13.232\n2024-01-02;19.362\n")
    np.testing.assert_allclose(to_panel(path)[0], [13.232, 19.362], rtol=1e-6)
    assert caplog.messages == ["'sales': the point in 13.232 is read as that of decimals"]


@pytest.mark.parametrize("fields", [["0.125", "2.375"], ["1.5", "2.375"], ["1.125", "2000"]])
def test_numbers_that_cannot_be_thousands_are_decimals_without_a_word(
    path: Path, fields: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    path.write_text(f"day;sales\n2024-01-01;{fields[0]}\n2024-01-02;{fields[1]}\n")
    np.testing.assert_allclose(to_panel(path)[0], [float(field) for field in fields])
    assert not caplog.messages


def test_text_among_the_numbers_of_the_only_series_is_named(path: Path) -> None:
    path.write_text("Month,Sales\n2024-01,1\n2024-02,-\n2024-03,3\n")
    with pytest.raises(DataError, match=r"'Sales' must hold numbers. Got '-' in series 'Sales' at 2024-02-01"):
        to_panel(path)


def test_a_named_target_without_ids_is_one_series_beside_other_numbers(path: Path) -> None:
    path.write_text("Month,Sales,Cost\n2024-01,1,5\n2024-02,2,6\n")
    assert to_panel(path, target_col="Sales").ids == ("Sales",)
    assert to_panel(path).ids == ("Sales", "Cost")


def test_years_without_a_name_for_them_say_how_to_name_them(path: Path) -> None:
    path.write_text("Year,Sales\n1999,1\n2000,2\n")
    with pytest.raises(DataError, match="or one per column, name the times alone, such as time_col='Year'"):
        to_panel(path)
    assert "1999 to 2000" in str(to_panel(path, time_col="Year"))
    path.write_text("Sales\n1\n2\n")
    with pytest.raises(DataError, match="Hint: add a column of times beside 'Sales'"):
        to_panel(path)


def test_beside_decimal_commas_the_text_that_is_no_number_is_named(path: Path) -> None:
    path.write_text("unique_id;ds;y\na;1;25,4\na;2;24,9 kWh\na;3;7\n")
    with pytest.raises(DataError, match=r"'y' must hold numbers\. Got '24,9 kWh' in series 'a' at 2"):
        to_panel(path)
