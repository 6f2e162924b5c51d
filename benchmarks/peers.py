"""Who is measured: how each peer is started, and what it takes to have it. Nothing here runs anything but pip.

Every peer runs with one process on one core, without access log, without retries, as light as its flags allow. A peer
that is not there is skipped with a sentence that says why.
"""

import shlex
import shutil
import subprocess
import sys
import venv
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.processes import free_port

ROOT = Path(__file__).resolve().parent.parent
VENVS = ROOT / ".cache" / "bench"
BUSY = '{"error":{"message":"busy","type":"rate_limit_error","code":"rate_limit_exceeded"}}'

# Peers with an environment of their own, because their dependencies do not go with ours.
REQUIREMENTS = {
    "litellm": "litellm[proxy]==1.108.7",
    "vllm-router": "vllm-router==0.1.17",
}


class MissingPeerError(Exception):
    """The peer cannot be started here; the text says what would help."""


@dataclass(frozen=True, slots=True)
class Setup:
    """What a peer is told when it is started. `folder` is for its files; refusing means 429 to every request.

    `model` is the name that the upstream serves, for peers that must be told.
    """

    port: int
    upstream_port: int
    folder: Path
    is_refusing: bool = False
    model: str = "m"
    body_budget_bytes: int | None = None

    @property
    def upstream(self) -> str:
        return f"http://127.0.0.1:{self.upstream_port}"


@dataclass(frozen=True, slots=True)
class Launch:
    command: Sequence[str]
    environment: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Peer:
    """One row of the tables. `scenarios` names those it is for, all if empty; `launch` None is the stub itself.

    `can_refuse`: some flag makes it refuse everything. vllm-router's limit of one request still lets some through, and
    LiteLLM's limits need a database.
    """

    name: str
    launch: Callable[[Setup], Launch] | None
    ready_path: str = "/health"
    can_refuse: bool = True
    scenarios: frozenset[str] = frozenset()
    is_ours: bool = False


def _program(name: str, folder: Path | None = None) -> str:
    found = str(folder / name) if folder else shutil.which(name)
    if found and Path(found).exists():
        return found
    advice = f"; --with {name} installs it under {VENVS.relative_to(ROOT)}" if name in REQUIREMENTS else ""
    raise MissingPeerError(f"{name} is not installed{advice}")


def _nginx(setup: Setup) -> Launch:
    answer = (
        f"default_type application/json; add_header Retry-After 1 always; return 429 '{BUSY}';"
        if setup.is_refusing
        else "proxy_pass http://stub; proxy_http_version 1.1; proxy_set_header Connection ''; proxy_buffering off;"
        " proxy_request_buffering off; proxy_read_timeout 600s;"
    )
    folders = " ".join(
        f"{kind}_temp_path {setup.folder}/nginx_{kind};" for kind in ("proxy", "fastcgi", "uwsgi", "scgi")
    )
    file = setup.folder / f"nginx_{setup.port}.conf"
    file.write_text(f"""
daemon off; master_process off; worker_processes 1; error_log stderr crit; pid {setup.folder}/nginx_{setup.port}.pid;
events {{ worker_connections 8192; }}
http {{
  access_log off; client_max_body_size 0; keepalive_requests 100000000; tcp_nodelay on;
  client_body_temp_path {setup.folder}/nginx_body; {folders}
  upstream stub {{ server 127.0.0.1:{setup.upstream_port}; keepalive 2048; keepalive_requests 100000000; }}
  server {{
    listen 127.0.0.1:{setup.port} backlog=4096;
    location = /health {{ return 200; }}
    location / {{ {answer} }}
  }}
}}
""")
    return Launch([_program("nginx"), "-c", str(file), "-p", str(setup.folder)])


def _haproxy(setup: Setup) -> Launch:
    refusal = f"http-request return status 429 content-type application/json hdr Retry-After 1 string '{BUSY}'"
    file = setup.folder / f"haproxy_{setup.port}.cfg"
    file.write_text(f"""
global
  nbthread 1
  maxconn 8192
defaults
  mode http
  timeout client 600s
  timeout server 600s
  timeout connect 5s
  http-reuse always
  option http-no-delay
frontend clients
  bind 127.0.0.1:{setup.port}
  http-request return status 200 if {{ path /health }}
  {refusal if setup.is_refusing else ""}
  default_backend stub
backend stub
  server stub 127.0.0.1:{setup.upstream_port} pool-max-conn 2048
""")
    return Launch([_program("haproxy"), "-db", "-f", str(file)])


def _litellm(setup: Setup) -> Launch:
    file = setup.folder / "litellm.yaml"
    file.write_text(f"""
model_list:
  - model_name: {setup.model}
    litellm_params: {{model: openai/{setup.model}, api_base: "{setup.upstream}/v1", api_key: x, max_retries: 0}}
litellm_settings: {{telemetry: false, request_timeout: 600, num_retries: 0}}
general_settings: {{max_parallel_requests: 100000}}
""")
    environment = {
        "LITELLM_LOCAL_MODEL_COST_MAP": "True",
        "LITELLM_LOG": "ERROR",
        "LITELLM_MODE": "PRODUCTION",
        "LITELLM_TELEMETRY": "False",
        "LITELLM_DANGEROUSLY_PERMIT_WEAK_OR_UNSET_MASTER_KEY": "true",
        "NO_DOCS": "True",
    }
    program = _program("litellm", VENVS / "litellm" / "bin")
    flags = ["--config", str(file), "--host", "127.0.0.1", "--port", str(setup.port), "--num_workers", "1"]
    return Launch([program, *flags], environment)


def _vllm_router(setup: Setup) -> Launch:
    flags = {
        "--worker-urls": setup.upstream,
        "--host": "127.0.0.1",
        "--port": str(setup.port),
        "--prometheus-port": str(free_port()),
        "--policy": "round_robin",
        "--log-level": "error",
        "--max-payload-size": str(1 << 30),
        "--max-concurrent-requests": "4096",
        "--queue-size": "4096",
        "--request-timeout-secs": "600",
    }
    words = [word for flag in flags.items() for word in flag]
    program = _program("vllm-router", VENVS / "vllm-router" / "bin")
    return Launch([program, *words, "--disable-retries", "--disable-circuit-breaker"])


def _proxy_of_this_folder(module: str) -> Callable[[Setup], Launch]:
    def launch(setup: Setup) -> Launch:
        flags = ["--app-dir", str(ROOT / "benchmarks" / "proxies"), "--host", "127.0.0.1", "--port", str(setup.port)]
        speed = ["--loop", "uvloop", "--http", "httptools", "--no-access-log", "--log-level", "warning"]
        environment = {"UPSTREAM": setup.upstream, "REFUSE": str(int(setup.is_refusing))}
        return Launch([sys.executable, "-m", "uvicorn", f"{module}:app", *flags, *speed], environment)

    return launch


def gateway(**settings: str) -> Callable[[Setup], Launch]:
    """The gateway as installed here, with environment variables on top of what every run sets."""

    def launch(setup: Setup) -> Launch:
        program = _program("vlm-gateway", Path(sys.executable).parent)
        environment = {
            "GATEWAY_SERVER__HOST": "127.0.0.1",
            "GATEWAY_SERVER__DRAIN_GRACE_SECONDS": "0",
            "GATEWAY_LOG__REQUESTS": "false",
            **settings,
        }
        if setup.is_refusing:
            environment["GATEWAY_SERVER__SEATS"] = "0"
        if setup.body_budget_bytes is not None:
            environment["GATEWAY_BUDGET__BODY_BYTES"] = str(setup.body_budget_bytes)
        return Launch([program, "serve", "--upstream", setup.upstream, "--port", str(setup.port)], environment)

    return launch


BODY_SCENARIOS = frozenset({"image_1mb", "image_20mb", "mixed", "memory"})
PEERS = {
    peer.name: peer
    for peer in (
        Peer("direct", None, can_refuse=False),
        Peer("nginx", _nginx),
        Peer("haproxy", _haproxy),
        Peer("vllm-router", _vllm_router, can_refuse=False),
        Peer("litellm", _litellm, ready_path="/health/liveliness", can_refuse=False),
        Peer("bare-asgi", _proxy_of_this_folder("bare_asgi")),
        Peer("fastapi+httpx", _proxy_of_this_folder("fastapi_httpx")),
        Peer("gateway", gateway(), ready_path="/livez", is_ours=True),
        Peer(
            "gateway-header",
            gateway(GATEWAY_IMAGES__VERIFY="header"),
            ready_path="/livez",
            scenarios=BODY_SCENARIOS,
            is_ours=True,
        ),
        Peer(
            "gateway-logs",
            gateway(GATEWAY_LOG__REQUESTS="true"),
            ready_path="/livez",
            scenarios=frozenset({"text"}),
            is_ours=True,
        ),
    )
}


def custom(definition: str) -> Peer:
    """A peer from the command line, `NAME=COMMAND`; {port}, {upstream} and {refuse} are filled in.

    Raises ValueError if one of the two is missing.
    """
    name, _, command = definition.partition("=")
    if not name or not command:
        raise ValueError(f"{definition!r} is not NAME=COMMAND")

    def launch(setup: Setup) -> Launch:
        refuse = str(int(setup.is_refusing))
        line = command.format(port=setup.port, upstream=setup.upstream, refuse=refuse)
        return Launch(shlex.split(line), {"UPSTREAM": setup.upstream, "PORT": str(setup.port), "REFUSE": refuse})

    return Peer(name, launch, is_ours=True)


def install(name: str) -> None:
    """Make the environment of `name` if it is not there. Raises MissingPeerError with pip's last line."""
    folder = VENVS / name
    done = folder / ".installed"
    if done.exists():
        return
    venv.create(folder, with_pip=True, clear=True)
    pip = [str(folder / "bin" / "python"), "-m", "pip", "install", "-q", "--disable-pip-version-check"]
    outcome = subprocess.run([*pip, REQUIREMENTS[name]], capture_output=True, text=True, check=False)
    if outcome.returncode:
        last = (outcome.stderr.strip() or "pip failed").splitlines()[-1]
        raise MissingPeerError(f"pip could not install {REQUIREMENTS[name]}: {last}")
    done.touch()
