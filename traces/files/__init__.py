"""Files as streams of bytes and of whole lines: decompressed, remote, in parts."""
