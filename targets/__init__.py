"""What can be measured, behind the protocol Target."""
