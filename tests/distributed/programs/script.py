"""Started by torchrun: trains on as many devices as there are processes, and prints what process 0 knows.

`python -m torch.distributed.run … script.py [kill|raise]`: process 1 is killed, or raises an error, in its first backward.
"""

import sys

from executor.training import train
from executor.workers.environment import place
from schedir.ir.action import Kind
from tests.distributed.programs import faults
from tests.distributed.programs.work import TIMEOUT_S
from tests.executor.small.models import batches, compiled, mlp, pipeline_of

here = place()
if len(sys.argv) > 1:
    faults.at((Kind.BACKWARD, 1, 0), {"kill": faults.kill, "raise": faults.raise_lookup_error}[sys.argv[1]])
run = train(compiled("1f1b", here.count, 4), pipeline_of(mlp(here.count)), batches(2), timeout=TIMEOUT_S)
if here.number == 0:
    sys.stdout.write(f"{run.timeline.meta['workers']} {run.losses}\n")
