"""What a cluster file gives, what it may not say, and in which line the user reads it."""

from dataclasses import replace
from pathlib import Path

import pytest

from schedir.costs.cluster.cluster_file import load_cluster
from schedir.costs.cluster.groups import Axis
from schedir.costs.cluster.hardware import PRESETS, Device, Joins, LinkLevel, LinkOverride, Sharing
from schedir.errors import FormatError
from tests.costs.cluster.clusters import H100
from tests.repository import ROOT

TEXT = (ROOT / "tests/data/h100-64.cluster.toml").read_text(encoding="utf-8")
ORDER = 'order = "tensor, data, pipeline"'


def test_an_absurd_bandwidth_is_refused_as_the_formats_say(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    text = TEXT.replace('"450 GB/s"', "50").replace('name = "8 hosts x 8 H100"\n\n', "").replace("[device]\n", "", 1)
    Path("cluster.toml").write_text(
        text.replace('preset = "h100-sxm-80gb"            # fills', "[device] # fills"), encoding="utf-8"
    )

    with pytest.raises(FormatError) as refusal:
        load_cluster("cluster.toml")

    assert str(refusal.value) == 'cluster.toml:18: links.0.bandwidth: 50 bytes/s is absurd: write "50 GB/s" or "400 Gbit/s"'


@pytest.mark.parametrize(
    ("old", "new", "line"),
    [
        ('"h100-sxm-80gb"', '"h100-sxm-80g"', r":5: device\.preset: 'h100-sxm-80g' is unknown, did you mean h100-sxm-80gb\?"),
        ("speed = 1.0", "sped = 1.0", r":10: device\.sped: the key is unknown, did you mean speed\?"),
        ("speed = 1.0", "speed = 0", r":10: device\.speed: 0 does not fit: it should be greater than 0"),
        ("speed = 1.0", "speed = nan", r":10: device\.speed: nan does not fit: it should be a finite number"),
        ("speed = 1.0", "speed = true", r":10: device\.speed: True does not fit: it should be a valid number"),
        ('"6 GB"', '"90 GB"', r":7: device\.reserved: 90\.0 GB of 80\.0 GB memory leave nothing: reserve less"),
        ('memory = "80 GB"', "memory = 80", r':6: device\.memory: 80 bytes is absurd: write "80 GB" or "80 GiB"'),
        ("{ bf16", "{ bf61", r":8: device\.peak_flops\.bf61: the key is unknown, did you mean bf16\?"),
        (
            "speed = 1.0",
            'speed_changes = [{ at = "5 s", speed = 0.5 }, { at = "4 s", speed = 1.0 }]',
            r":10: device\.speed_changes\.1\.at: 4 s is not behind 5 s: give later times later",
        ),
        ("count = 8", "count = 0", r":14: hosts\.count: 0 does not fit: it should be greater than or equal to 1"),
        ("count = 8", "count = 2.5", r":14: hosts\.count: 2\.5 does not fit: it should be a valid integer"),
        ("[hosts]", "[host]", r":13: host: the key is unknown, did you mean hosts\?"),
        ("count = 8\n", "", r":13: hosts\.count: the key is missing: give it"),
        ('joins = "host"', 'joins = "rack"', r":20: links\.0\.joins: 'rack' is unknown: use 'device', 'host' or 'cluster'"),
        (
            'joins = "cluster"',
            'joins = "device"',
            r":28: links\.1\.joins: 'device' stands behind 'host': give the links of the nearest",
        ),
        ('name = "infiniband"', 'name = "nvlink"', r":27: links\.1\.name: 'nvlink' stands twice"),
        ('"3 us"', "3", r':22: links\.0\.latency: 3 s is absurd: write "3 us" or "3 ms"'),
        ('"3 us"', '"-3 us"', r":22: links\.0\.latency: '-3 us' is negative"),
        (
            "efficiency = 0.8",
            "efficiency = 80",
            r":24: links\.0\.efficiency: 80 does not fit: it should be less than or equal to 1",
        ),
        ('"100 Gbit/s"', '"0 GB/s"', r":45: overrides\.1\.bandwidth: '0 GB/s' does not fit: it should be greater than 0"),
        (ORDER, 'order = "tensor"', r":35: placement\.order: 'tensor' must name tensor, data and pipeline once each"),
        (ORDER, "pipeline_devices = [[0, 1], [8]]", r":35: placement\.pipeline_devices: .* has groups of different or no length"),
        (ORDER, "pipeline_devices = [[0, 1], [8, 64]]", r":35: placement\.pipeline_devices: device 64 is none of 0\.\.63"),
        (ORDER, "pipeline_devices = [[0, 0], [8, 9]]", r":35: placement\.pipeline_devices: \[0, 0\] names a device twice"),
        (ORDER, f"{ORDER}\npipeline_devices = [[0], [8]]", r":36: placement\.pipeline_devices: stands beside order"),
        ("device = 13", "device = 64", r":39: overrides\.0\.device: device 64 is none of 0\.\.63: use these"),
        ("device = 13", 'device = 13\nlink = "nvlink"', r":38: overrides\.0: changes neither or both of a device and a link"),
        ("device = 13", 'device = 13\nlatency = "3 us"', r":40: overrides\.0\.latency: goes with a link: leave it out"),
        (
            'link = "infiniband"',
            'link = "infinibant"',
            r":43: overrides\.1\.link: 'infinibant' is unknown, did you mean infiniband\?",
        ),
        ("hosts = [2, 3]", "hosts = [2, 8]", r":44: overrides\.1\.hosts: host 8 is none of 0\.\.7"),
        ("hosts = [2, 3]", "hosts = [2, 3]\nspeed = 0.5", r":45: overrides\.1\.speed: goes with a device: leave it out"),
        ("schedir.cluster/1", "schedir.costs/1", r":1: schema: 'schedir\.costs/1' is not known here: a cluster file of version 1"),
    ],
)
def test_what_breaks_a_rule_is_refused_with_its_line(tmp_path: Path, *, old: str, new: str, line: str) -> None:
    assert old in TEXT
    path = tmp_path / "mine.cluster.toml"
    path.write_text(TEXT.replace(old, new, 1), encoding="utf-8")

    with pytest.raises(FormatError, match=line) as refusal:
        load_cluster(path)

    assert "\n" not in str(refusal.value)


def test_a_file_without_a_preset_states_what_it_knows(tmp_path: Path) -> None:
    path = tmp_path / "laptop.cluster.toml"
    path.write_text('schema = "schedir.cluster/1"\n[hosts]\ncount = 1\ndevices_per_host = 2\ncores = 2\n', encoding="utf-8")
    cluster = load_cluster(path)

    assert (cluster.name, cluster.num_devices, cluster.cores, cluster.device.memory) == ("laptop", 2, 2, None)


def test_the_file_gives_every_figure() -> None:
    device = Device(
        memory=80e9,
        reserved=6e9,
        peak_flops={"bf16": 989e12, "fp16": 989e12, "fp8": 1979e12, "tf32": 494e12, "fp32": 67e12},
        efficiency=0.45,
        price_per_hour=2.5,
    )

    assert (H100.name, H100.title, H100.num_hosts, H100.devices_per_host, H100.cores) == ("h100-64", "8 hosts x 8 H100", 8, 8, 96)
    assert H100.device == device
    assert H100.overrides == {13: replace(device, speed=0.8)}
    assert H100.links == (
        LinkLevel(name="nvlink", joins=Joins.HOST, bandwidth=450e9, latency=3e-6, efficiency=0.8),
        LinkLevel(name="infiniband", joins=Joins.CLUSTER, bandwidth=50e9, latency=8e-6, sharing=Sharing.FAIR),
    )
    assert H100.link_overrides == (LinkOverride(link="infiniband", hosts=(2, 3), bandwidth=12.5e9),)
    assert H100.order == (Axis.TENSOR, Axis.DATA, Axis.PIPELINE)


def test_presets_leave_room_for_what_a_device_reserves() -> None:
    assert PRESETS["h100-sxm-80gb"].limit == 74e9  # 80 GB less 6 GB
    assert all(preset.limit is not None and preset.limit > 0 for preset in PRESETS.values())
