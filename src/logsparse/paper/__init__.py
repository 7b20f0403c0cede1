"""The paper: its data sets, tables, figures and claims, and the commands `data` and `reproduce`."""
