"""Measure reading and binning a long CSV: seconds and peak memory.

python benchmarks labs FILE.csv
"""

import argparse
from functools import partial

from timing import peak_memory, timed

from sparse_lds.experiments.labs import bin_labs, read_labs


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("file", help="lab results, a row for each")
    args = parser.parse_args()
    print(f"imported: peak {peak_memory():.2f} GB")
    labs, read = timed(partial(read_labs, args.file))
    print(f"read: {read:.1f} s, peak {peak_memory():.2f} GB")
    binned, bin_ = timed(partial(bin_labs, labs))
    print(f"read and binned: {read + bin_:.1f} s, peak {peak_memory():.2f} GB")
    print(binned)


if __name__ == "__main__":
    main()
