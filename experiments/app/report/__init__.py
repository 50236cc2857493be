"""The report: one HTML file that needs no network, from the results in a folder."""

from .page import Results as Results
from .page import write_report as write_report
from .parts import Part as Part
from .parts import Section as Section
