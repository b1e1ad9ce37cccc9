"""Read a cluster file: its tables become a `Cluster`, if they keep the rules that they must keep together."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from schedir.bytes_text import bytes_text
from schedir.costs.cluster.cluster import Cluster
from schedir.costs.cluster.cluster_tables import ClusterFile, DeviceFigures, DeviceTable, LinkTable, OverrideTable, SpeedChange
from schedir.costs.cluster.groups import DEFAULT_ORDER, Axis
from schedir.costs.cluster.hardware import PRESETS, Device, Joins, LinkLevel, LinkOverride, Owner, Sharing
from schedir.costs.files.border import nearest, validated
from schedir.costs.files.documents import Document, read_document
from schedir.costs.files.lines import Location
from schedir.expect import expect_path

SCHEMA = "schedir.cluster/1"


def load_cluster(path: str | Path) -> Cluster:
    """Read a cluster file, schedir.cluster/1; raise FormatError, in one line with file, line and key, where it breaks a rule."""
    expect_path(path, "path", "give the path of a cluster file, .toml or .json")
    document = read_document(path, SCHEMA)
    file = validated(document, ClusterFile)
    # pydantic has checked every key by itself; from here on it is about rules between keys, whose lines the document knows
    device = _device(document, file.device)
    stem = Path(path).name.removesuffix(Path(path).suffix).removesuffix(".cluster")
    return Cluster(
        name=stem,
        title=file.name,
        num_hosts=file.hosts.count,
        devices_per_host=file.hosts.devices_per_host,
        device=device,
        cores=file.hosts.cores,
        links=_levels(document, file.links),
        order=_order(document, file.placement.order),
        pipeline_devices=_pipeline_devices(document, file),
        overrides=_device_overrides(document, file, device),
        link_overrides=_link_overrides(document, file),
        file=str(path),
    )


def _device(document: Document, table: DeviceTable) -> Device:
    if table.preset is not None and table.preset not in PRESETS:
        message = f"{table.preset!r} is unknown{nearest(table.preset, PRESETS)}: use {', '.join(PRESETS)}, or give the keys"
        raise document.error(("device", "preset"), message)
    preset = Device() if table.preset is None else PRESETS[table.preset]
    return _changed(document, ("device",), preset, table=table)


def _changed(document: Document, location: Location, device: Device, *, table: DeviceFigures) -> Device:
    """Return the device with the figures that the table states."""
    stated: dict[str, Any] = {name: getattr(table, name) for name in DeviceFigures.model_fields}
    if table.peak_flops is not None:
        # number formats that the file leaves out stay the preset's
        stated["peak_flops"] = {**device.peak_flops, **table.peak_flops.model_dump(exclude_none=True)}
    if table.speed_changes is not None:
        stated["speed_changes"] = _speed_changes(document, (*location, "speed_changes"), table.speed_changes)
    device = replace(device, **{name: value for name, value in stated.items() if value is not None})
    if device.memory is not None and device.reserved >= device.memory:
        raise document.error(
            (*location, "reserved"),
            f"{bytes_text(device.reserved)} of {bytes_text(device.memory)} memory leave nothing: reserve less",
        )
    return device


def _speed_changes(document: Document, location: Location, changes: Sequence[SpeedChange]) -> tuple[tuple[float, float], ...]:
    found = tuple((change.at, change.speed) for change in changes)
    for place, (after, before) in enumerate(zip(found[1:], found, strict=False), start=1):
        if after[0] <= before[0]:
            raise document.error((*location, place, "at"), f"{after[0]:g} s is not behind {before[0]:g} s: give later times later")
    return found


def _levels(document: Document, tables: Sequence[LinkTable]) -> tuple[LinkLevel, ...]:
    nearest_first = list(Joins)  # the enum is in that order
    # a pair uses the first level that joins it, so one that stands behind a wider one would never be used
    for place, (table, before) in enumerate(zip(tables[1:], tables, strict=False), start=1):
        if nearest_first.index(Joins(table.joins)) < nearest_first.index(Joins(before.joins)):
            message = f"{table.joins!r} stands behind {before.joins!r}: give the links of the nearest level first"
            raise document.error(("links", place, "joins"), message)
        if table.name in {other.name for other in tables[:place]}:
            raise document.error(("links", place, "name"), f"{table.name!r} stands twice: give every level a name of its own")
    return tuple(
        LinkLevel(
            name=table.name,
            joins=Joins(table.joins),
            bandwidth=table.bandwidth,
            latency=table.latency,
            sharing=Sharing(table.sharing),
            per=Owner(table.per),
            efficiency=table.efficiency,
        )
        for table in tables
    )


def _order(document: Document, order: str | None) -> tuple[Axis, Axis, Axis]:
    if order is None:
        return DEFAULT_ORDER
    words = [word.strip() for word in order.split(",")]
    if sorted(words) != sorted(Axis):
        message = f'{order!r} must name tensor, data and pipeline once each, innermost first: write "tensor, data, pipeline"'
        raise document.error(("placement", "order"), message)
    first, second, third = (Axis(word) for word in words)
    return first, second, third


def _pipeline_devices(document: Document, file: ClusterFile) -> tuple[tuple[int, ...], ...] | None:
    groups = file.placement.pipeline_devices
    if groups is None:
        return None
    location = ("placement", "pipeline_devices")
    if file.placement.order is not None:
        raise document.error(location, "stands beside order, which it would replace: leave one of them out")
    # groups of one stage and the next send member to member, so they are equally many
    if len({len(group) for group in groups}) != 1 or not groups[0]:
        raise document.error(location, f"{groups} has groups of different or no length: give as many devices to each")
    for group in groups:
        _check_numbers(document, location, group, kind="device", count=_count(file))
    return tuple(map(tuple, groups))


def _count(file: ClusterFile) -> int:
    return file.hosts.count * file.hosts.devices_per_host


def _check_numbers(document: Document, location: Location, numbers: Sequence[int], *, kind: str, count: int) -> None:
    for number in numbers:
        if not 0 <= number < count:
            raise document.error(location, f"{kind} {number} is none of 0..{count - 1}: use these")
    if len(set(numbers)) != len(numbers):
        raise document.error(location, f"{list(numbers)} names a {kind} twice: name each once")


def _device_overrides(document: Document, file: ClusterFile, device: Device) -> Mapping[int, Device]:
    found: dict[int, Device] = {}
    for place, table in enumerate(file.overrides):
        location = ("overrides", place)
        if (table.device is None) == (table.link is None):
            raise document.error(location, "changes neither or both of a device and a link: give device or link")
        if table.device is not None:
            _refuse(document, location, table, names=("hosts", "devices", "bandwidth", "latency"))
            _check_numbers(document, (*location, "device"), [table.device], kind="device", count=_count(file))
            # several overrides of one device add up
            found[table.device] = _changed(document, location, found.get(table.device, device), table=table)
    return found


def _link_overrides(document: Document, file: ClusterFile) -> tuple[LinkOverride, ...]:
    found = []
    for place, table in enumerate(file.overrides):
        if table.link is None:
            continue
        location = ("overrides", place)
        _refuse(document, location, table, names=("memory", "reserved", "peak_flops", "speed", "speed_changes", "price_per_hour"))
        names = [level.name for level in file.links]
        if table.link not in names:
            message = f"{table.link!r} is unknown{nearest(table.link, names)}: use one of {', '.join(names) or 'no links'}"
            raise document.error((*location, "link"), message)
        _check_numbers(document, (*location, "hosts"), table.hosts or [], kind="host", count=file.hosts.count)
        _check_numbers(document, (*location, "devices"), table.devices or [], kind="device", count=_count(file))
        found.append(
            LinkOverride(
                link=table.link,
                hosts=None if table.hosts is None else tuple(table.hosts),
                devices=None if table.devices is None else tuple(table.devices),
                bandwidth=table.bandwidth,
                latency=table.latency,
                efficiency=table.efficiency,
            )
        )
    return tuple(found)


def _refuse(document: Document, location: Location, table: OverrideTable, *, names: Sequence[str]) -> None:
    kind = "a link" if table.device is not None else "a device"
    for name in names:
        if getattr(table, name) is not None:
            raise document.error((*location, name), f"goes with {kind}: leave it out, or give it an override of its own")
