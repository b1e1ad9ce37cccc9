"""Models of Hugging Face in processes, by name."""

from executor.model.cutting.split import split
from executor.training import train
from tests.distributed.programs.work import TIMEOUT_S, Found
from tests.executor.model.test_hugging_face import ARCHITECTURES
from tests.executor.small.models import compiled

NAMES = list(ARCHITECTURES)


def trained(name: str, workers: str) -> Found:
    architecture = ARCHITECTURES[name]
    pipeline = architecture.pipeline(split(architecture.model(), 3))
    return Found.of(train(compiled("zb-h1", 3, 2), pipeline, architecture.data(2), workers=workers, timeout=TIMEOUT_S))


def all_models(workers: str) -> dict[str, Found]:
    return {name: trained(name, workers) for name in NAMES}
