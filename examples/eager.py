"""A schedule of one's own: 1F1B whose devices run further ahead, so that transfers hide behind work ("eager 1F1B").

    device 0   F0 F1 F2 F3 F4 B0 F5 B1 B2 B3 B4 B5        p = 3, m = 6, extra = 1: 2 (p - k) - 1 forwards ahead on device k
    device 1   F0 F1 F2 B0 F3 B1 F4 B2 F5 B3 B4 B5        (plain 1F1B, extra = 0: p - k)
    device 2   F0 B0 F1 B1 F2 B2 F3 B3 F4 B4 F5 B5

The price is memory: as many activations live on a device as it runs forwards ahead. Try:

    schedir check examples/eager.py:eager --devices 3 --micro-batches 6 --gradients
    schedir compare 1f1b examples/eager.py:eager --micro-batches 16 --transfer 0.5
    schedir compare 1f1b examples/eager.py:eager --micro-batches 16 --transfer 0.5 --option extra=2
"""

from schedir.ir.shape import Shape


def eager(shape: Shape, extra: int = 1) -> list[str]:
    """Return one order for each device, as text; `extra` forwards more per device that is still to come."""
    p, m = shape.num_devices, shape.num_micro_batches
    orders = []
    for k in range(p):
        ahead = min(m, p - k + extra * (p - 1 - k))
        order = [f"{k}F{j}" for j in range(ahead)]
        for j in range(m):
            order.append(f"{k}B{j}")
            if ahead + j < m:
                order.append(f"{k}F{ahead + j}")
        orders.append(" ".join(order))
    return orders
