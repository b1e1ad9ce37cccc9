"""Workers in processes of their own, one per device, on one host or several: torch.distributed with gloo, or NCCL."""
