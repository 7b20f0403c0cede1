"""Result frame of a backtest -> one page that can be mailed: numbers, words, charts, and the page around them."""
