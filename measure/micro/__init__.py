"""Operations on files, with the traffic that they cause on network and disks."""
