"""The evaluation of the paper: lab data, forecasts, tables and figures."""
