"""The paper's data sets: public originals -> parquet files -> Panels, and a check against the paper's own table."""
