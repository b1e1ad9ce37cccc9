"""Clusters: devices, links, and where the devices of a pipeline stand among them."""
