"""The faults that happen by themselves: what each of them does to the world."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from lakeward_simulator.exchange import SILENT_S
from lakeward_simulator.faults import LONG
from lakeward_simulator.source import HEARTBEAT_S

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from lakeward.model.tables import TablePath
    from lakeward_simulator.coordinator import Coordinator
    from lakeward_simulator.exchange import SimChannel
    from lakeward_simulator.network import SimConnection
    from lakeward_simulator.world import World


LINGER_S = 5.0
"""Less than a checkpoint's time limit, and than the time after which a silent subtask is given up."""


def strike(world: World, kind: str, who: Coordinator) -> bool:
    """Let a fault happen.

    Args:
        world: where.
        kind: one of `faults.NOW`.
        who: the service at whose step it happens.

    Returns:
        Whether there was anything for it to happen to.
    """
    return _STRIKES[kind](world, who) is not False


def _subtask_crash(world: World, who: Coordinator) -> bool:
    if who.jobs.lose_upkeep():
        return True
    living = [(job, task) for job in who.jobs.jobs if not job.ended for task in job.tasks.values() if task.alive]
    if living:
        job, task = world.random.choice(living)
        if world.random.random() < 0.5:
            task.end(None)
        else:
            job.replace(task)
    return bool(living)


def _subtask_pause(world: World, who: Coordinator) -> bool:
    tasks = world.tasks(who)
    if tasks:
        world.random.choice(tasks).freeze(1.0 + world.random.random() * 40.0)
    return bool(tasks)


def _executor_lost(world: World, who: Coordinator) -> bool:
    """Some tasks of a job die at once; others get their slots back soon, late, or only when another task ends."""
    lost_upkeep = who.jobs.lose_upkeep()
    living = [job for job in who.jobs.jobs if any(task.alive for task in job.tasks.values())]
    if not living:
        return lost_upkeep
    job = world.random.choice(living)
    tasks = [task for task in job.tasks.values() if task.alive]
    lost = world.random.sample(tasks, world.random.randint(1, len(tasks)))
    job.lose(lost, retried=len(lost) == len(tasks) or world.random.random() < 0.5)
    return True


def _job_crash(world: World, who: Coordinator) -> bool:
    del world
    living = [job for job in who.jobs.every if not job.ended]
    for job in living:
        job.end("the stage was lost")
    return bool(living)


def _rescale(world: World, who: Coordinator) -> bool:
    slots = 1 + who.jobs.slots % 4
    who.jobs.most_slots = max(who.jobs.most_slots, slots, who.jobs.slots)
    if not _job_crash(world, who):
        return False
    world.slots = who.jobs.slots = slots
    who.jobs.slots_there = max(1, slots - (world.partitioned.missing_slots or 0))
    return True


def _coordinator_crash(world: World, who: Coordinator) -> None:
    who.crash()
    world.restart_later(who.service_name, 0.5 + world.random.random() * 50.0)


def _coordinator_pause(world: World, who: Coordinator) -> None:
    """It wakes up as a zombie where a successor was started meanwhile."""
    who.loop.freeze(2.0 + world.random.random() * 60.0)
    if world.random.random() < 0.7:
        world.restart_later(who.service_name, 1.0 + world.random.random() * 15.0)


def _asleep(world: World, who: Coordinator) -> None:
    """As a pause, for as long as a successor takes to get something done."""
    who.loop.freeze(12.0 + world.random.random() * 10.0)
    world.restart_later(who.service_name, 1.0)


def _second_start(world: World, who: Coordinator) -> None:
    world.start(who.service_name)


def _other_service(world: World, who: Coordinator) -> bool:
    if (
        who.service_name != "svc" or world.of("other") or world.partitioned.routes
    ):  # a mirrored lake table has one service
        return False
    world.start("other")
    return True


def _connection(world: World, who: Coordinator) -> SimConnection | None:
    connections = who.network.connections
    return world.random.choice(connections) if connections else None


def _lost(world: World, who: Coordinator) -> bool:
    if (connection := _connection(world, who)) is None:
        return False
    connection.cut()
    return True


def _delayed(world: World, who: Coordinator) -> bool:
    if (connection := _connection(world, who)) is None:
        return False
    direction = world.random.choice(("up", "down"))
    connection.stalled_until[direction] = world.scheduler.now + 3.0 + world.random.random() * 12.0
    return True


def _reordered(world: World, who: Coordinator) -> bool:
    for connection in who.network.connections:
        for direction in ("up", "down"):
            connection.stalled_until[direction] = world.scheduler.now + world.random.random() * 2.0
    return bool(who.network.connections)


def _repeated(world: World, who: Coordinator) -> bool:
    if (connection := _connection(world, who)) is None:
        return False
    connection.repeat = True
    return True


def _channels(world: World, who: Coordinator) -> list[SimChannel]:
    """Return the open channels of a service's subtasks."""
    tasks = {id(task) for task in who.jobs.running()}
    return [one for one in world.exchange.channels if id(one.producer.process) in tasks]


def _channel_lost(world: World, who: Coordinator) -> bool:
    channels = _channels(world, who)
    if channels:
        world.random.choice(channels).cut()
    return bool(channels)


def _channel_stalled(world: World, who: Coordinator) -> bool:
    """One stream stands still; for too long, and the channel is lost."""
    channels = _channels(world, who)
    if channels:
        stream = world.random.choice(("data", "data", "marks"))
        world.random.choice(channels).stall(stream, 1.0 + world.random.random() * 1.2 * SILENT_S)
    return bool(channels)


def _channel_slow(world: World, who: Coordinator) -> bool:
    """All that one subtask sends, or gets, is late: batches wait where they are made."""
    channels = _channels(world, who)
    if not channels:
        return False
    one, seconds = world.random.choice(channels), 0.5 + world.random.random() * 3.0
    outwards = world.random.random() < 0.5
    for other in channels:
        if (other.producer is one.producer) if outwards else (other.consumer is one.consumer):
            other.slow_s = seconds
    return True


def _credit_late(world: World, who: Coordinator) -> bool:
    """What a subtask has written is known to nobody for a while: all that send to it stand still."""
    channels = _channels(world, who)
    if not channels:
        return False
    consumer = world.random.choice(channels).consumer
    for other in channels:
        if other.consumer is consumer:
            other.stall("credit", 1.0 + world.random.random() * (SILENT_S - 2.0))
    return True


def _rows(world: World, who: Coordinator) -> list[str]:
    """Return the files of rows that a service's newest checkpoints need."""
    newest = (run.facts.newest for run in who.tables.rounds if run.facts.newest is not None)
    found = {one.name for done in newest for state in done.state.exchange for one in state.segments()}
    return sorted(name for name in found if name in world.files)


def _rows_damaged(world: World, who: Coordinator) -> bool:
    if rows := _rows(world, who):
        world.files.damage(world.random.choice(rows))
    return bool(rows)


def _rows_gone(world: World, who: Coordinator) -> bool:
    if rows := _rows(world, who):
        name = world.random.choice(rows)
        world.files.damage(name)
        world.files.lose(name)
    return bool(rows)


def _clock(world: World, who: Coordinator) -> None:
    del who
    world.clock.offset_ms += world.random.choice((-3_600_000, -30_000, 30_000, 3_600_000))


def _cleaned(world: World, who: Coordinator) -> None:
    del who
    for path in world.source.tables_by_path:
        world.append(path, 1)
        world.take_snapshots(path)


def _expired(world: World, who: Coordinator) -> None:
    """The worst moment: the lease has run out, and the clean-up comes at once."""
    world.source.leases.expire_all()
    _cleaned(world, who)


def _path(world: World) -> TablePath | None:
    paths = [*world.source.tables_by_path]
    return world.random.choice(paths) if paths else None


def _dropped(world: World, who: Coordinator) -> bool:
    del who
    if (path := _path(world)) is None:
        return False
    world.source.drop(path)
    return True


def _recreated(world: World, who: Coordinator) -> bool:
    del who
    if (path := _path(world)) is None:
        return False
    world.source.drop(path)
    keyed = world.random.random() < 0.5
    make = partial(world.source.create, path, buckets=world.random.randint(1, 3), keyed=keyed)

    def again() -> None:
        make()
        world.append(path, 5)
        world.take_snapshots(path)

    world.later(world.random.random() * 3.0, again)
    return True


def _restart(world: World, who: Coordinator) -> None:
    del who
    world.source.restart()


def _away(world: World, who: Coordinator) -> None:
    del who
    world.source.away_until = world.scheduler.now + world.away_s + world.random.random() * 12.0


def _long_outage(world: World, who: Coordinator) -> None:
    """It is away for longer than the source waits for its heartbeat, and the lease does not run out meanwhile."""
    world.lease_s = max(world.lease_s, 120.0)
    who.crash()
    world.restart_later(who.service_name, HEARTBEAT_S + 2.0 + world.random.random() * 20.0)
    for after in (HEARTBEAT_S - 5.0, HEARTBEAT_S + 25.0):
        world.scheduler.after(after, partial(_cleaned, world, who))


def _cleaned_while_away(world: World, who: Coordinator) -> None:
    who.crash()
    away_s = 3.0 + world.random.random() * 10.0
    world.scheduler.after(away_s / 2.0, partial(_cleaned, world, who))
    world.restart_later(who.service_name, away_s)


def _buckets_changed(world: World, who: Coordinator) -> bool:
    del who
    if (path := _path(world)) is None:
        return False
    world.change_buckets(path)
    return True


def _buckets_changed_while_away(world: World, who: Coordinator) -> bool:
    if not world.source.tables_by_path:
        return False
    who.crash()
    away_s = 3.0 + world.random.random() * 10.0
    world.later(away_s / 2.0, partial(_buckets_changed, world, who))
    world.restart_later(who.service_name, away_s)
    return True


def _graceful_stop(world: World, who: Coordinator) -> None:
    if world.random.random() < 0.5:
        who.stop_in_a_hurry()
    else:
        who.stop()  # its rounds end early, and are committed
    world.scheduler.after(2.0 + world.random.random() * 4.0, partial(_cleaned, world, who))


def linger(world: World, who: Coordinator, step: str) -> None:
    """Make a step last for some seconds, so that the call that a fault waits for is made in it."""
    until = world.scheduler.now + LINGER_S
    who.lingers = step
    for connection in who.network.connections if LONG[step] is None else ():
        connection.stalled_until.update(up=until, down=until)


_STRIKES: Mapping[str, Callable[[World, Coordinator], bool | None]] = {
    "subtask crash": _subtask_crash,
    "subtask pause": _subtask_pause,
    "executor lost": _executor_lost,
    "job crash": _job_crash,
    "rescale": _rescale,
    "coordinator crash": _coordinator_crash,
    "coordinator pause": _coordinator_pause,
    "asleep": _asleep,  # only in the midst of a call
    "second start": _second_start,
    "other service": _other_service,
    "connection lost": _lost,
    "messages delayed": _delayed,
    "messages repeated": _repeated,
    "messages reordered": _reordered,
    "wall clock jump": _clock,
    "snapshots cleaned": _cleaned,
    "leases expire": _expired,
    "table dropped": _dropped,
    "table recreated": _recreated,
    "source restart": _restart,
    "source away": _away,
    "long outage": _long_outage,
    "cleaned while away": _cleaned_while_away,
    "graceful stop": _graceful_stop,
    "channel lost": _channel_lost,
    "channel stalled": _channel_stalled,
    "channel slow": _channel_slow,
    "credit late": _credit_late,
    "rows damaged": _rows_damaged,
    "rows gone": _rows_gone,
    "buckets changed": _buckets_changed,
    "buckets changed while away": _buckets_changed_while_away,
}
