"""The posterior around a fit: NUTS draws, diagnostics of them, and forecasts from them."""
