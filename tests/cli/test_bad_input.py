"""Bad input of every kind: exit code 2, exactly one line `error: …`, and nothing half-written."""

import os
import re
from pathlib import Path

import pytest

from tests.cli.command import Command
from tests.repository import ROOT

BROKEN_TOML = 'schema = "schedir.program/1"\nname = "x\n'
BROKEN_COSTS = 'schema = "schedir.costs/1"\ngranularity = "stage"\n[default]\nforwrd = 1.0\n'
BROKEN_CSV = "0F0,0F1,0B0\n1F0,1X1\n"
UNEVEN = """
import torch
from executor import Recipe

def uneven():
    stages = [torch.nn.Linear(3, 4), torch.nn.Linear(5, 3)]
    data = lambda seed: [(torch.zeros(4, 3), torch.zeros(4, 3))] * 50
    return Recipe(stages=stages, loss=torch.nn.functional.mse_loss, optimizer=lambda p: torch.optim.SGD(p, lr=0.1), data=data)
"""
DIGITS = "9" * 5001
"""More than Python reads as an integer."""
FILES = {
    "broken.toml": BROKEN_TOML,
    "broken.costs.toml": BROKEN_COSTS,
    "broken.costs.json": '{"schema": "schedir.costs/1",',
    "broken.csv": BROKEN_CSV,
    "broken.json": '{"traceEvents": [',
    "huge.csv": "0F0,0B0\n999999998F0,999999998B0\n",
    "huge.toml": 'schema = "schedir.program/1"\nnum_micro_batches = 999999999\norder = ["0F0 0B0"]\n',
    "missing.csv": "0F0,0F1,0B0,0B1\n1F0,1B0,1B1\n",
    "deep.toml": "a=" + "[" * 5000,
    "digits.csv": f"0F{DIGITS},0B0\n",
    "digits.toml": f'schema = "schedir.program/1"\nnum_micro_batches = {"9" * 5001}\norder = ["0F0 0B0"]\n',
    "digits.costs.json": f'{{"schema": "schedir.costs/1", "granularity": "stage", "default": {{"forward": {"9" * 5001}}}}}',
    "digits.costs.toml": f'schema = "schedir.costs/1"\ngranularity = "stage"\n[default]\nforward = {"9" * 5001}\n',
    "deep.csv": "(" * 5000,
    "empty.csv": "",
    "empty.toml": "",
    "empty.json": "",
    "broken.py": "def schedule(shape):\n    return 1 / 0\n",
    "recipe.py": UNEVEN,
    "taken": "a file where a folder is needed",
}

COMMANDS = [
    ("simulate 1f2b", r"schedule '1f2b' is unknown, did you mean 1f1b\?"),
    ("simulate 1f1b --devices 0", "--devices 0 must be an integer of at least 1"),
    ("simulate 1f1b --devices 2.5", r"--devices 2\.5 must be an integer of at least 1"),
    ("simulate 1f1b --devices -1", "--devices -1 must be an integer of at least 1"),
    ("simulate 1f1b --micro-batches 1e3", "--micro-batches 1e3 must be an integer of at least 1"),
    ("simulate 1f1b --forward nan", "--forward nan must be a finite number of at least 0, or one per stage, comma-separated"),
    ("simulate 1f1b --forward inf", "--forward inf must be a finite number"),
    ("simulate 1f1b --forward -1", "--forward -1 must be a finite number"),
    ("simulate 1f1b --forward 1,,2", "--forward 1,,2 must be a finite number"),
    ("simulate 1f1b --forward 1,2", "--forward 1,2 has 2 values, but 1f1b has 4 stages: give one value, or one per stage"),
    ("simulate 1f1b --input-grad 1", "--input-grad 1 is given without --weight-grad"),
    ("simulate 1f1b --unit h", "--unit h is unknown: use s, ms, us"),
    ("simulate 1f1b --engine fast", "--engine fast is unknown: use auto, in-order, simpy"),
    ("simulate 1f1b --recompute often", "--recompute often is unknown"),
    ("simulate 1f1b --recompute-start late", "--recompute-start late is unknown"),
    ("simulate 1f1b --sends quick", "--sends quick is unknown"),
    ("simulate 1f1b --option recompute=always", "schedule 1f1b has no option 'recompute': it has none"),
    ("simulate 1f1b --horizon 2", "schedule 1f1b has no option --horizon: it has none; leave it out, or use xpipe, spectrain or"),
    ("simulate xpipe --horizon far", "--horizon far is unknown"),
    ("simulate pipedream --replicas 2,1", "--replicas 2,1 need 3 devices, but --devices is 4"),
    ("simulate 1f1b --stages-per-device 2", "1f1b does not take this shape"),
    ("simulate 1f1b --costs missing.toml", "missing.toml: there is no such file"),
    ("simulate 1f1b --costs broken.toml", "broken.toml"),
    ("simulate 1f1b --costs broken.costs.toml", r"broken\.costs\.toml:4: .*forwrd.*did you mean forward"),
    ("simulate 1f1b --costs broken.costs.json", r"broken\.costs\.json:1"),
    ("simulate 1f1b --costs stages.costs.toml --forward 1", "--forward: --costs stages.costs.toml gives costs already"),
    ("simulate 1f1b --costs stages.costs.toml --transfer 1,2,3", "--transfer has 3 values, but with --costs it is one for all"),
    ("simulate 1f1b --memory-limit 80GiX", "--memory-limit 80GiX is no amount of bytes: .* unknown unit 'GiX'"),
    ("simulate 1f1b --memory-limit 80", "--memory-limit 80 is no amount of bytes: 80 bytes is absurd"),
    ("simulate 1f1b --memory-limit 10GB", "--memory-limit 10GB is compared with the memory that is held, but these costs carry no"),
    ("compare gpipe 1f1b --memory-limit 10GB", "--memory-limit 10GB is compared with the memory that is held"),
    ("simulate 1f1b --devices 99999999999", r"1f1b: 1599999999984 actions \(.*\) are more than the 100000000 that can be built"),
    ("show pipedream --mini-batches 99999999999", "pipedream: 6399999999936 actions"),
    ("check xpipe --micro-batches 99999999999", "xpipe: .* actions"),
    ("plot gpipe -o out/x.svg --stages-per-device 99999999999", "gpipe: .* actions"),
    ("compare gpipe 1f1b --devices 99999999999", "gpipe: .* actions"),
    ("convert huge.csv -o out/x.toml", r"huge\.csv: 1999999998 actions \(999999999 stages x 1 micro-batches"),
    ("simulate huge.csv", r"huge\.csv: 1999999998 actions"),
    ("show huge.toml", r"huge\.toml: 1999999998 actions \(1 stages x 999999999 micro-batches"),
    ("show broken.py:schedule --devices 99999999999 --micro-batches 8", r"broken\.py:schedule: 1599999999984 actions"),
    ("simulate 1f1b --recompute-time 1,2", "--recompute-time 1,2 has 2 values, but 1f1b has 4 stages"),
    ("simulate 1f1b --require-fit", "--require-fit: memory is not computed: give --costs with bytes"),
    ("simulate 1f1b --costs stages.costs.toml --require-fit", "--require-fit: no limit is known: give --memory-limit"),
    ("simulate 1f1b --mini-batch-size 100", "--mini-batch-size 100 does not split into 8 equal micro-batches: nearest are 96 and"),
    ("simulate 1f1b --mini-batch-size 16 --micro-batch-size 4", "--mini-batch-size 16 is not 8 micro-batches x --micro-batch-"),
    ("simulate 1f1b --samples 10", "--samples 10 would all be alike: the costs keep no samples, so give jitter"),
    ("simulate gpipe --samples 10 --jitter 0.1 --sends rendezvous", "--samples draws with buffered sends only"),
    ("simulate 1f1b --jitter nan", "--jitter nan must be a finite number of at least 0"),
    ("simulate 1f1b --cluster missing.toml", "missing.toml"),
    ("simulate 1f1b --cluster broken.toml", "broken.toml"),
    ("simulate 1f1b --transfer-bytes 5x", "--transfer-bytes 5x is no amount of bytes"),
    ("simulate 1f1b --layers-per-stage 1,1", "there is no --costs FILE"),
    ("simulate 1f1b --seed -1", "--seed -1 must be an integer from 0 to 2"),
    ("train 1f1b --model mlp --seed -1", "--seed -1 must be an integer from 0 to 2"),
    ("train 1f1b --model mlp --seed 9223372036854775808", "--seed 9223372036854775808 must be an integer from 0 to 2"),
    ("profile mlp --seed 18446744073709551616", "--seed 18446744073709551616 must be an integer from 0 to 2"),
    ("search --seed 1e3", "--seed 1e3 must be an integer from 0 to 2"),
    ("simulate 1f1b --plot out/x.gif", "suffix '.gif' is no picture's"),
    ("simulate 1f1b --plot out/x", "there is no suffix"),
    ("simulate 1f1b --trace out/t.json --plot out/x.gif", "suffix '.gif' is no picture's"),
    ("simulate 1f1b --trace out/t.json --plot taken/x.svg", "taken/x.svg cannot be written"),
    ("simulate 1f1b --plot taken/x.svg", "taken/x.svg cannot be written"),
    ("simulate 1f1b --trace taken/x.json", "taken"),
    ("simulate missing.toml", "missing.toml: no such file"),
    ("simulate broken.toml", "broken.toml:2"),
    ("simulate broken.csv", r"broken\.csv:2: .*1X1"),
    ("simulate missing.csv --micro-batches 2", r"missing\.csv.*1F1 is missing"),
    ("simulate missing.py:schedule", "missing.py: no such file"),
    ("simulate broken.py:schedule --devices 2 --micro-batches 2", r"broken\.py:schedule raised ZeroDivisionError: division by"),
    ("simulate broken.py:nothing", "broken.py has no function 'nothing'"),
    ("simulate no.such.module:schedule", "there is no module 'no' here"),
    ("simulate zigzag.program.toml --devices 3", "--devices 3 contradicts zigzag.program.toml, which has 2"),
    ("show gpipe --option order", "--option order must be NAME=VALUE"),
    ("check 1f1b --sends fast", "--sends fast is unknown: use buffered, rendezvous"),
    ("compare", "missing argument"),
    ("compare gpipe 1f1b --micro-batches 1,2,3", "--micro-batches has 3 values for 2 schedules: give one value"),
    ("compare gpipe 1f1b --horizon 2", "--horizon: none of gpipe, 1f1b has an option horizon: leave it out"),
    ("compare gpipe 1f1b --out taken", "taken"),
    ("compare gpipe 1f1b --micro-batches 3,2 --costs stages.costs.toml", "a micro-batch would have 1.5 samples: choose"),
    ("compare gpipe --model mlp --skips 0-2", "--skips: with --model recomputation starts early, and the model says what its"),
    ("compare gpipe --model mlp --recompute-start on-gradient", "--recompute-start: with --model recomputation starts early"),
    ("compare gpipe --model mlp --samples 9", "--samples: with --model predictions draw from the measured costs"),
    ("compare a.json b.json --forward 2", "--forward: timelines of files are compared as they are: leave it out"),
    ("compare a.json b.json --devices 2", "--devices: timelines of files are compared as they are: leave it out"),
    ("plot a.json --recompute always -o out/x.svg", "--recompute: timelines of files are drawn as they are: leave it out"),
    ("compare gpipe --require-fit --memory-limit 1GB --costs stages.costs.toml", r"gpipe: device \d: .* > 1\.0 GB: "),
    ("compare gpipe --samples 10 --jitter 0.1 --sends rendezvous", "--samples draws with buffered sends only"),
    ("plot gpipe --samples 3 -o out/x.svg", "no such option: --samples"),
    ("simulate 1f1b --skip-bytes 3", "--skip-bytes: no stages are joined by a skip connection: give --skips, too, or leave it out"),
    ("compare gpipe --model mlp --activation-limit 3", "--activation-limit: with --model nothing chooses an order"),
    ("search --predict 2", "--predict: every order of a search flushes, so nothing is predicted: leave it out"),
    ("search --mini-batches 2", "--mini-batches 2 is for the file: give --output, too, or leave it out"),
    ("show zb-v --activation-limit 3", "no such option: --activation-limit"),
    ("compare gpipe nothere.json", r"gpipe is no timeline file \(.json, .json.gz\), but nothere.json is: compare files"),
    ("compare gpipe stages.costs.toml", "schema is 'schedir.costs/1', but a program has 'schedir.program/1': give another file"),
    ("simulate 1f1b --fixed-order", "--fixed-order: the order of 1f1b never follows the costs: leave it out"),
    ("plot gpipe 1f1b --fixed-order -o out/x.svg", "--fixed-order: the order of gpipe, 1f1b never follows the costs"),
    ("simulate 1f1b --trace out/x.txt", "--trace out/x.txt is no name of a timeline: end it with .json or .json.gz"),
    ("simulate 1f1b --engine in-order --cores 2", "--engine in-order cannot do contention: .*: use simpy or auto"),
    ("simulate 1f1b --ties 0-9", "--ties 0-9 do not name stages of 0..3: give two or more for each tie, each once"),
    ("simulate 1f1b --memory-limit 5Q", "--memory-limit 5Q is no amount of bytes: '5Q' has the unknown unit 'Q': write it like"),
    ("search --micro-batch-size 2", "--micro-batch-size 2 resizes a file's costs: give --costs, or leave it out"),
    ("compare gpipe --rounds 2", "--rounds: without --model nothing is trained: leave it out"),
    ("compare gpipe --model mlp --forward 2", "--forward: with --model costs are measured: leave it out"),
    ("compare gpipe --model mlp --mini-batch-size 8", "--mini-batch-size: with --model the data has its own sizes"),
    ("compare gpipe --model mlp --engine simpy", "--engine: with --model predictions draw from the measured costs"),
    ("compare gpipe --model nothing", "--model nothing is unknown"),
    ("compare gpipe --model mlp --devices 9", "a model of 4 layers does not cut into 9 stages"),
    ("compare gpipe gpipe --model mlp", "schedule gpipe is named twice"),
    ("compare gpipe --model mlp --mini-batches 1", "gpipe has 1 mini-batches, but its steady state needs 2"),
    ("compare broken.json broken.json", "broken.json"),
    ("compare missing.json missing.json", "missing.json"),
    ("compare broken.json 1f1b", "1f1b is no timeline file"),
    ("profile nothing", "model 'nothing' is unknown: use character-transformer, mlp, conv-net, or FILE.py:FUNCTION"),
    ("profile --model nothing", "--model nothing is unknown: use character-transformer, mlp, conv-net, or FILE.py:FUNCTION"),
    ("profile", "profile measures one model, but got none: give RECIPE or --model RECIPE"),
    ("profile mlp --model conv-net", "profile measures one model, but got two: mlp and --model conv-net"),
    ("profile broken.py:nothing", "broken.py has no function 'nothing'"),
    ("profile mlp -o costs.txt", "--output costs.txt is no costs file: end its name with .json or .toml"),
    ("profile mlp -o taken/costs.toml", "taken is no folder for files"),
    ("profile mlp --stages 9", "a model of 4 layers does not cut into 9 stages"),
    ("profile recipe.py:uneven", r"stage 1 cannot run on what reaches it, shape \(1, 4\) \(mat1 and mat2 .*\): let it take"),
    ("plot 1f1b", "plot needs a file for its picture: give --output FILE"),
    ("plot 1f1b -o out/x.jpg", "suffix '.jpg' is no picture's"),
    ("plot broken.json -o out/x.svg", "broken.json"),
    ("plot missing.json -o out/x.svg", "missing.json"),
    ("plot 1f1b -o out/x.svg --width 0", "--width 0 must be a finite number above 0"),
    ("plot 1f1b -o out/x.svg --width 1000", "--width 1000 is out of range"),
    ("plot 1f1b -o out/x.svg --style bright", "--style bright is unknown"),
    ("plot 1f1b -o out/x.svg --color-by size", "--color-by size is unknown"),
    ("plot 1f1b -o out/x.svg --number-from 2", "--number-from 2 is neither 0 nor 1"),
    ("search --iterations 1 -o x.doc", "^--output x.doc does not say the form of a program: end its name with"),
    ("search --iterations 1 -o taken/x.toml", "taken is no folder for files: .*taken is a file: name another place"),
    ("search --iterations 1 --plot taken/x.svg", "taken is no folder for files"),
    ("convert 1f1b -o out/x.doc", "does not say the form of a program"),
    ("convert 1f1b -o x.doc", "^x.doc does not say the form of a program"),
    ("convert pipedream -o x.csv", "pipedream has the weight rule stash, but PyTorch's pipelining has one version of the weights"),
    ("convert 1f1b x.csv --mini-batches 2", "1f1b has 2 mini-batches, but PyTorch's pipelining runs one a step: give"),
    ("convert 1f1b x.csv -o y.csv", "--output y.csv: x.csv is given as well: leave one of them out"),
    ("convert 1f1b x.toml --format compute-only", "form compute-only does not go into x.toml: end its name with .csv"),
    ("convert 1f1b --format torch", "--format torch is unknown: use text, toml, compute-only, compute-comms"),
    ("simulate 1f1b --trace .", "cannot be written"),
    ("simulate 1f1b --trace out", "^out cannot be written"),
    ("simulate 1f1b --forward 1e308", "--forward 1e308 is more than the 1e.12 seconds that a time may have"),
    ("show gpipe --option order=fifo --order reverse", "--option order: the option is given twice: leave one of them out"),
    ("show gpipe --option num_devices=3", "^--option num_devices=3: a count has a flag of its own: give --devices 3$"),
    ("show deep.toml", "deep.toml: is nested too deeply"),
    ("show digits.csv", "digits.csv:1: device 0: cell 1: '0F9+… has a number of more than nine digits"),
    ("show digits.toml", "digits.toml"),
    ("simulate 1f1b --costs digits.costs.json", "digits.costs.json: has a number too long to be read: give one that"),
    ("simulate 1f1b --costs digits.costs.toml", "digits.costs.toml: has a number too long to be read: give one that"),
    ("show deep.csv", r"deep.csv:1: device 0: cell 1: '\(+… is no action"),
    ("show empty.csv", "empty.csv has no actions"),
    ("show empty.toml", "empty.toml"),
    ("compare empty.json empty.json", "empty.json:1: is no JSON"),
    ("simulate 1f1b --costs empty.toml", "empty.toml:1: schema: is missing"),
    ("show pipe.toml", "pipe.toml cannot be read: is a pipe, not a file"),
    ("simulate 1f1b --costs pipe.toml", "pipe.toml: cannot be read: is a pipe, not a file"),
    ("compare pipe.json pipe.json", r"pipe.json: cannot be read \(is a pipe, not a file\)"),
    ("convert 1f1b -o taken/x.csv", "taken/x.csv cannot be written"),
]  # fmt: skip


@pytest.fixture
def folder(command: Command, tmp_path: Path) -> Path:
    """Return the folder where the command runs, with broken files and an out/ that holds one old file."""
    assert command is not None
    for name, text in FILES.items():
        (tmp_path / name).write_text(text)
    (tmp_path / "stages.costs.toml").write_text((ROOT / "tests" / "data" / "stages.costs.toml").read_text())
    (tmp_path / "zigzag.program.toml").write_text((ROOT / "examples" / "mended.program.toml").read_text())
    for suffix in ("json", "toml"):
        os.mkfifo(tmp_path / f"pipe.{suffix}")  # which nobody writes into
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "old.txt").write_text("old")
    return tmp_path


def contents(folder: Path) -> dict[str, str]:
    return {
        path.relative_to(folder).as_posix(): path.read_text()
        for path in folder.rglob("*")
        if path.suffix != ".pyc" and path.is_file()
    }


@pytest.mark.parametrize("case", COMMANDS, ids=[words for words, _ in COMMANDS])
def test_bad_input_is_one_line_and_leaves_nothing(command: Command, folder: Path, case: tuple[str, str]) -> None:
    words, message = case
    before = contents(folder)
    error = command.fail(*words.split())

    assert re.search(message, error), error
    assert len(error) < 500, error
    assert contents(folder) == before
