"""Just enough of Ray to run the select actors in this process: the code around them is the real.

What travels is pickled as Ray does it, so arrays arrive read-only and nothing is shared by mistake.
Work that `run` or `jobs.select` hands to actors is thus tested without a second process, and an
actor can be lost at a call of choice.
"""

import pickle
import sys
from collections import Counter
from types import SimpleNamespace

import cloudpickle


class ActorDied(Exception):
    """Stands for `ray.exceptions.RayActorError`."""


class KilledForMemory(Exception):
    """Stands for `ray.exceptions.OutOfMemoryError`, which is no `RayActorError`."""


class NeverMet(Exception):
    """Stands for what Ray raises of other processes, which there are none of."""


class InlineRay:
    """Stands in for the module `ray` inside a `with` block.

    Attributes:
        calls: How often each method of an actor was called.
        deaths: Calls at which an actor was lost, as (method, number of the call).
        death: What such a call raises.
    """

    exceptions = SimpleNamespace(
        **dict.fromkeys(
            ("WorkerCrashedError", "ObjectLostError", "NodeDiedError", "RaySystemError"), NeverMet
        ),
        RayActorError=ActorDied,
        OutOfMemoryError=KilledForMemory,
    )
    death = ActorDied

    def __init__(self, *, lose=(), cpus=64):
        """Lose the actor that gets the n-th call of a method, for each (method, n) in `lose`."""
        self._lose, self._cpus = set(lose), cpus
        self.calls, self.deaths = Counter(), []

    def __enter__(self):
        self._real = sys.modules.get("ray")
        sys.modules["ray"] = self
        return self

    def __exit__(self, *_):
        del sys.modules["ray"]
        if self._real is not None:
            sys.modules["ray"] = self._real

    def is_initialized(self):
        return True

    def cluster_resources(self):
        return {"CPU": float(self._cpus)}

    def nodes(self):
        return [{"Alive": True, "Resources": self.cluster_resources()}]

    def put(self, value):
        return _Reference(shipped(value))

    def get(self, reference):
        if isinstance(reference.value, (ActorDied, KilledForMemory)):
            raise reference.value
        return reference.value

    def wait(self, references, *, num_returns, timeout):
        return references, []

    def kill(self, actor):
        actor.dead = True

    def remote(self, kind):
        def options(**_):
            return SimpleNamespace(remote=lambda *args, **more: _Actor(self, kind, args, more))

        return SimpleNamespace(options=options)

    def dies(self, method):
        """Count a call; whether its actor is lost."""
        self.calls[method] += 1
        lost = (method, self.calls[method]) in self._lose
        if lost:
            self.deaths.append((method, self.calls[method]))
        return lost


class _Reference:
    def __init__(self, value):
        self.value = value


class _Actor:
    def __init__(self, ray, kind, args, more):
        args, more = shipped((args, more))
        self._ray, self._held, self.dead = ray, kind(*args, **more), False
        self.call = SimpleNamespace(remote=self._call)

    def _call(self, method, *args):
        self.dead = self.dead or self._ray.dies(method)
        if self.dead:
            return _Reference(self._ray.death(f"lost at {method}"))
        plain = [one.value if isinstance(one, _Reference) else shipped(one) for one in args]
        return _Reference(shipped(self._held.call(method, *plain)))


def shipped(value):
    """What arrives of a value in another process."""
    buffers = []
    data = cloudpickle.dumps(value, protocol=5, buffer_callback=buffers.append)
    return pickle.loads(data, buffers=[bytes(buffer.raw()) for buffer in buffers])
