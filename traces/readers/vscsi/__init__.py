"""VMware's vscsiStats: binary, CSV and histograms."""
