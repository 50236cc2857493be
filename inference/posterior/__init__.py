"""NUTS around a fit, and what a judgement of its draws needs."""
