"""Reading and binning a long CSV: seconds and peak memory.

python benchmarks/speed/labs.py FILE.csv
"""

import resource
import sys
import time

from sparse_lds.experiments.labs import bin_labs, read_labs


def peak() -> str:
    return f"{resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6:.2f} GB"


print(f"imported: peak {peak()}")
start = time.perf_counter()
labs = read_labs(sys.argv[1])
print(f"read: {time.perf_counter() - start:.1f} s, peak {peak()}")
binned = bin_labs(labs)
print(f"read and binned: {time.perf_counter() - start:.1f} s, peak {peak()}")
print(binned)
