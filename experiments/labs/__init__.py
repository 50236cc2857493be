"""From a file of lab results to a cohort."""

from .reading import Binned, Labs, bin_labs, labs_from_frame, read_labs

__all__ = ["Binned", "Labs", "bin_labs", "labs_from_frame", "read_labs"]
