"""Result frame of a backtest -> one self-contained HTML page: numbers, charts, text."""
