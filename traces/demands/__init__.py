"""What accesses ask of the storage, by kind: sizes, alignment, depths, and time waited."""
