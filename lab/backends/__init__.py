"""The lab's servers of other storage protocols, each on a disk like those of the OSDs."""
