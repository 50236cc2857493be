"""From a file of lab results to a cohort: `read_labs` reads the file, `bin_labs` puts it on a grid of times."""

from .binning import Binned, bin_labs
from .gathering import Labs
from .on_disk import OnDisk, bin_to_disk
from .reading import labs_from_frame, read_labs

__all__ = ["Binned", "Labs", "OnDisk", "bin_labs", "bin_to_disk", "labs_from_frame", "read_labs"]
