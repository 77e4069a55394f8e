"""Workers, nodes and time limits."""

from typing import Annotated

from pydantic import Field, field_validator

from jobs.config.section import Bytes, Section

Amount = Annotated[float, Field(gt=0)]


class WorkersConfig(Section):
    """Workers of one stage and what each asks of a node; results never depend on these.

    Attributes:
        actors: How many must fit; null: as many as do.
        cpus: CPUs of one, and its threads.
        gpus: GPUs of one; null: what the stage has use for, where there are any.
        memory: Memory that is set aside for one (`8GiB`); null: it is not looked at.
        resources: The cluster's own resources, by name.
    """

    actors: int | None = Field(None, ge=1)
    cpus: float = Field(1.0, gt=0)
    gpus: float | None = Field(None, ge=0)
    memory: Bytes | None = None
    resources: dict[str, Amount] = Field(default_factory=dict)

    @field_validator("resources")
    @classmethod
    def _own(cls, resources: dict[str, float]) -> dict[str, float]:
        taken = sorted({"CPU", "GPU", "memory", "object_store_memory"} & set(resources))
        if taken:
            raise ValueError(f"{taken[0]} has a key of its own (cpus, gpus, memory)")
        return resources


class NodesConfig(Section):
    """Nodes of one kind that an autoscaling cluster may grow to."""

    count: int = Field(ge=1, le=100_000)
    cpus: float = Field(ge=0)
    gpus: float = Field(0.0, ge=0)
    memory: Bytes | None = None
    resources: dict[str, Amount] = Field(default_factory=dict)


class ClusterConfig(Section):
    """Which Ray to use: `local` starts one inside this process, an address joins it.

    Attributes:
        address: `local`, or of a running Ray; inside `ray job submit` that one is joined.
        cpus: Of a local Ray; null: all.
        object_store_mib: Of a local Ray.
        nodes: What the cluster grows to when it is asked for more; null: the nodes that are there.
    """

    address: str = "local"
    cpus: int | None = Field(None, ge=1)
    object_store_mib: int = Field(256, ge=80)
    nodes: list[NodesConfig] | None = Field(None, min_length=1)
    embed: WorkersConfig = WorkersConfig()
    select: WorkersConfig = WorkersConfig()
    rank: WorkersConfig = WorkersConfig()
    generate: WorkersConfig = WorkersConfig()


class TimeoutsConfig(Section):
    """How long is too long.

    Attributes:
        stall_s: Seconds without a sign of work (a unit or rows finished, a worker that computes)
            after which a run gives up and says what is pending; null: never. Half an hour is more
            than nodes take to start and models to be fetched.
    """

    stall_s: float | None = Field(1800.0, gt=0)
