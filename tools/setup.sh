#!/usr/bin/env bash
# Build .venv with schedir, its tools and PyTorch. Called by make; PYTHON=... chooses the interpreter.
# A torch that the interpreter can import already is kept; otherwise constraints.txt says which one to install.
set -euo pipefail
cd "$(dirname "$0")/.."

fail() {
    echo "set-up failed: $1" >&2
    exit 1
}

fits() {
    "$1" -c 'import sys; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 13))' >/dev/null 2>&1
}

choose_python() {
    local candidate
    if [ -n "${PYTHON:-}" ]; then
        fits "$PYTHON" || fail "PYTHON=$PYTHON is not a Python of version 3.11, 3.12 or 3.13; name one, as in: make PYTHON=python3.12 setup"
        echo "$PYTHON"
        return
    fi
    for candidate in python3 python3.13 python3.12 python3.11; do
        if fits "$candidate"; then
            echo "$candidate"
            return
        fi
    done
    fail "found no Python of version 3.11, 3.12 or 3.13 on PATH; install one, or name it, as in: make PYTHON=/path/to/python3.12 setup"
}

# The version of a torch that the interpreter has already, if it is new enough; else nothing.
own_torch() {
    "$1" - 2>/dev/null <<'PYTHON' || true
import importlib.metadata
import torch

version = importlib.metadata.version("torch")
if tuple(int(part) for part in version.split(".")[:2]) >= (2, 6):
    print(version)
PYTHON
}

# Let .venv see the packages of another virtual environment; --system-site-packages shows it only those of the system.
share_packages() {
    local here
    here=$(.venv/bin/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
    "$1" -c 'import site; print(*site.getsitepackages(), sep="\n")' >"$here/own_torch.pth"
}

# Run pip and say meanwhile how far it is: a download of minutes is no silence then. Returns pip's exit status.
watched() {
    local log=$1 reporter status=0
    shift
    : >"$log"
    report "$log" &
    reporter=$!
    trap "kill $reporter 2>/dev/null || true" EXIT # also where Ctrl-C ends this script: what runs behind does not hear it
    "$@" >"$log" 2>&1 || status=$?
    kill "$reporter" 2>/dev/null || true
    wait "$reporter" 2>/dev/null || true
    trap - EXIT
    return "$status"
}

# A line whenever pip does something else, and every 20 s.
report() {
    local begun=$SECONDS last="" now
    while sleep 1; do
        now=$(phase "$1")
        if [ "$now" != "$last" ] || [ $(((SECONDS - begun) % 20)) -eq 0 ]; then
            echo "set-up: $((SECONDS - begun)) s, $now"
            last=$now
        fi
    done
}

# What pip does, by what it has logged.
phase() {
    if grep -q '^Installing collected packages' "$1"; then
        echo "unpacks $(sed -n 's/^Installing collected packages: //p' "$1" | tail -n 1 | tr ',' '\n' | wc -l) packages"
    elif grep -q 'Downloading torch-' "$1"; then
        echo "downloads PyTorch and what it needs"
    elif grep -q '^Collecting' "$1"; then
        echo "finds and downloads packages"
    else
        echo "prepares schedir itself"
    fi
}

echo "set-up: looks for a Python and a torch that is there already"
python=$(choose_python)
version=$("$python" -c 'import platform; print(platform.python_version())')
torch=$(own_torch "$python")
log=.venv/set-up.log
constraints=constraints.txt

begun=.venv/set-up.begun
# A set-up that was stopped may have left half a package behind, which pip takes for a whole one.
if [ -e "$begun" ] || ! fits .venv/bin/python || ! .venv/bin/python -m pip --version >/dev/null 2>&1; then
    echo "set-up: a virtual environment in .venv, Python $version"
    "$python" -m venv --clear ${torch:+--system-site-packages} .venv >/dev/null 2>&1 \
        || fail "$python cannot make a virtual environment; install its venv module (Debian, Ubuntu: apt install python3-venv), then run make setup again"
fi
if [ -n "$torch" ]; then
    echo "set-up: keeps the torch $torch that $python has already"
    .venv/bin/python -c 'import torch' >/dev/null 2>&1 || share_packages "$python"
    constraints=.venv/constraints.txt
    echo "torch==$torch" >"$constraints"
fi

touch "$begun"
echo "set-up: installs schedir, its tools and PyTorch (a minute or more; details in $log)"
if ! watched "$log" .venv/bin/python -m pip install --disable-pip-version-check -c "$constraints" -e '.[train,dev]'; then
    reason=$(grep -o 'ERROR: .*' "$log" | head -n 1 || true)
    fail "pip could not install the packages (${reason:-no reason given}); look into $log, check the network or the proxy, then run make setup again"
fi
rm "$begun"
echo "set-up: done; try .venv/bin/schedir --help"
