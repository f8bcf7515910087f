"""Files as streams of bytes and of whole lines: decompressed, from elsewhere, in parts."""
