"""Sweep file to plan to applied configuration to samples; Ceph administration; targets."""
