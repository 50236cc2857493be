"""Turn a file of lab results into a cohort: read it with `read_labs`, bin it with `bin_labs`."""

from .binning import Binned, bin_labs
from .gathering import Labs
from .reading import labs_from_frame, read_labs

__all__ = ["Binned", "Labs", "bin_labs", "labs_from_frame", "read_labs"]
