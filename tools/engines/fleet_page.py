"""The part of the page about experiments with a fleet."""

from __future__ import annotations

from typing import Any, Final

_HEAD: Final = """
## A fleet under load

`python tools/check_fleet.py` runs two replicas of vLLM, with the bundled pair, behind one endpoint of Ray
Serve LLM {version} ({date}), and disturbs them while calls go on, with the client's two retries.
The machine had two cores and other work, so the times are no benchmark.
"""
_COMMANDS_HEAD: Final = """\
## The commands on a cluster

`python tools/check_fleet.py commands` runs the [example of two
replicas](fleets.md#from-the-bundled-pair-to-two-replicas) in an empty home folder, with Ray {version}
({date}), and what can go wrong with it. After each failure, no process of the cluster is left. The machine
had two cores and other work, so the times are no benchmark."""
_STEPS: Final = {
    "nothing_runs": "before a deployment: `complete` and `status` name `specclient fleet deploy pair`; a "
    "cluster that is away and a pool that cannot hold the model are refused",
    "deploy": "`deploy`, until two replicas answer",
    "complete": "`complete -m pair/auto` and `-m local/demo` print the same text",
    "refuse_a_second_fleet_of_the_name": "a second fleet of the name is refused",
    "batch": "`batch --on ray` of 24 and then 48 lines has the records of a batch without Ray, and sends no "
    "line twice",
    "stop": "`stop`: no process is left",
    "deploy_without_vllm": "`deploy` with an environment that has Ray without vLLM: refused",
    "deploy_that_gets_not_ready": "`deploy` with too short a `start_s`: taken back",
    "stop_a_killed_cluster": "the cluster is killed amid a deployment: `stop` works",
}
#: The plot of the experiments with a timeline, in the folder of the page.
PICTURE: Final = "pictures/fleet.png"
#: The plot of the streams during which a replica was killed.
STREAMS_PICTURE: Final = "pictures/fleet_streams.png"


def fleet_section(found: dict[str, dict[str, Any]]) -> list[str]:
    """Return the lines of the part; none without results.

    Args:
        found: by experiment, its ``version``, ``date`` and figures, or ``failed``.
    """
    if not found:
        return []
    first = next(iter(found.values()))
    commands = found.get("commands", {})
    lines = _HEAD.format(version=first["version"], date=first["date"]).splitlines()
    for name, tell in (("killed_replica", _killed), ("update", _update), ("autoscaling", _autoscaling)):
        if (entry := found.get(name)) is None:
            continue
        lines += ["", f"- {name}: failed, {entry['failed']}"] if "failed" in entry else ["", *tell(entry)]
    if any("finished" in entry for entry in found.values()):
        lines += ["", f"![Calls answered per second while the fleet changes]({PICTURE})"]
    return lines + _commands(commands)


def _commands(entry: dict[str, Any]) -> list[str]:
    """Return the lines about the commands on a real cluster; none where they were not run."""
    if not entry:
        return []
    if "failed" in entry:
        return ["", f"- commands: failed, {entry['failed']}"]
    times = entry["steps"]
    rows = [f"| {step} | {times[name]:.0f} s |" for name, step in _STEPS.items() if name in times]
    head = _COMMANDS_HEAD.format(version=entry["version"], date=entry["date"]).splitlines()
    return ["", *head, "", "| Step | Time |", "|---|---|", *rows]


def _killed(entry: dict[str, Any]) -> list[str]:
    lines = [
        "**A replica is killed while 16 streams run** (SIGKILL, an eighth of the tokens after the start).",
        "",
        "| Streams | Number | Outcome |",
        "|---|---|---|",
    ]
    for routes in ("with failover", "without"):
        title = {"without": "without failover"}.get(routes, routes)
        lines += [f"| {title} | {count} | {outcome} |" for outcome, count in sorted(entry[routes].items())]
    return [*lines, "", f"![Pieces of 16 streams received before and after the kill]({STREAMS_PICTURE})"]


def _update(entry: dict[str, Any]) -> list[str]:
    begun, done = _at(entry, "update begun"), _at(entry, "update done")
    during = sum(begun <= at <= done for at in entry["finished"])
    return [
        f"**The draft model is replaced by EAGLE-3 heads under load**, in {done - begun:.0f} s: "
        f"{_answers(entry)}; answered during the replacement: {during}. "
        f"{entry['events'][-1][1].capitalize()} afterwards.",
    ]


def _autoscaling(entry: dict[str, Any]) -> list[str]:
    begun, grown = _at(entry, "load begun"), _at(entry, "three replicas")
    ended, shrunk = _at(entry, "load ended"), _at(entry, "one replica")
    return [
        f"**One to three replicas follow 12 calls at once**: three after {grown - begun:.0f} s of load, one "
        f"replica again {shrunk - ended:.0f} s after its end; {_answers(entry)}.",
    ]


def _answers(entry: dict[str, Any]) -> str:
    failed = sum(entry["errors"].values())
    causes = "; ".join(f"{count} × {cause}" for cause, count in sorted(entry["errors"].items()))
    return f"{entry['answered']} calls answered, {failed or 'none'} failed{f' ({causes})' if causes else ''}"


def _at(entry: dict[str, Any], event: str) -> float:
    return next(at for at, name in entry["events"] if name == event)
