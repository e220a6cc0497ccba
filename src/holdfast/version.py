"""The version of this package; also written into journals."""

VERSION = "0.1.0"
