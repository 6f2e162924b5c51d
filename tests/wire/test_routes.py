import pytest

from gateway.domain.errors import Code
from gateway.domain.outcome import Reason
from gateway.telemetry.declarations import ENDPOINTS, OTHER
from gateway.wire.closed_routes import why_closed
from gateway.wire.routes import Kind, classify, sent_on
from gateway.wire.voices import ANTHROPIC, voice_of


@pytest.mark.parametrize(
    ("method", "path", "kind"),
    [
        ("POST", "/v1/chat/completions", Kind.CHAT),
        ("POST", "/v1/chat/completions/batch", Kind.BATCH),
        ("POST", "/v1/messages", Kind.MESSAGES),
        ("POST", "/v1/responses", Kind.RESPONSES),
        ("POST", "/v1/completions", Kind.COMPLETIONS),
        ("POST", "/v1/embeddings", Kind.EMBEDDINGS),
        ("POST", "/v2/embed", Kind.COHERE_EMBED),
        ("POST", "/pooling", Kind.POOLING),
        ("POST", "/classify", Kind.POOLING),
        ("POST", "/score", Kind.SCORE),
        ("POST", "/v1/score", Kind.SCORE),
        ("POST", "/rerank", Kind.RERANK),
        ("POST", "/v1/rerank", Kind.RERANK),
        ("POST", "/v2/rerank", Kind.RERANK),
        ("POST", "/tokenize", Kind.TOKENS),
        ("POST", "/v1/messages/count_tokens", Kind.TOKENS),
        ("POST", "/detokenize", Kind.GENERIC),
        ("GET", "/v1/models", Kind.MODELS),
        ("POST", "/gateway/preflight", Kind.PREFLIGHT),
        ("POST", "/gateway/try", Kind.TRY),
    ],
)
def test_open_routes(method, path, kind):
    route = classify(method, path)
    assert (route.kind, route.methods, route.model_id, route.refusal) == (kind, (method,), None, None)


@pytest.mark.parametrize(("method", "path"), [("GET", "/v1/responses/resp_1"), ("POST", "/v1/responses/resp_1/cancel")])
def test_one_stored_answer(method, path):
    route = classify(method, path)
    assert (route.kind, route.methods, route.response_id) == (Kind.STORED_RESPONSE, (method,), "resp_1")


@pytest.mark.parametrize("path", ["/v1/responses/", "/v1/responses//cancel", "/v1/responses/a/b", "/v1/responses/a/"])
def test_what_names_no_stored_answer(path):
    assert classify("GET", path).kind is Kind.UNKNOWN


@pytest.mark.parametrize("model_id", ["m", "Qwen/Qwen2.5-VL-7B-Instruct"])
def test_one_model(model_id):
    route = classify("GET", f"/v1/models/{model_id}")
    assert (route.kind, route.model_id, route.refusal) == (Kind.MODELS, model_id, None)


@pytest.mark.parametrize(
    "path",
    [
        "/v1/responses/render",
        "/v1/messages/render",
        "/invocations",
        "/ping",
        "/generative_scoring",
        "/v1/systemone",
        "/v1/audio/transcriptions",
        "/v1/audio/translations",
        "/v1/realtime",
        "/inference/v1/generate",
        "/inference/v1/abort_requests",
        "/v1/completions/render",
        "/v1/chat/completions/render",
        "/v1/chat/completions/derender",
        "/v1/completions/derender",
        "/v1/load_lora_adapter",
        "/v1/unload_lora_adapter",
        "/load",
        "/kv_event_sources",
        "/scale_elastic_ep",
        "/is_scaling_elastic_ep",
        "/server_info",
        "/sleep",
        "/wake_up",
        "/is_sleeping",
        "/release_kv_cache_memory",
        "/reset_prefix_cache",
        "/reset_mm_cache",
        "/reset_encoder_cache",
        "/collective_rpc",
        "/pause",
        "/resume",
        "/update_weights",
        "/start_profile",
        "/stop_profile",
        "/fault_tolerance/status",
        "/cohere/v2/chat",
        "/tokenizer_info",
        "/abort_requests",
    ],
)
@pytest.mark.parametrize("method", ["GET", "POST"])
def test_routes_that_are_not_inspected_or_for_operators_are_closed(method, path):
    error = classify(method, path).refusal
    assert (error.code, error.status, error.reason) == (Code.PERMISSION_DENIED, 403, Reason.CLOSED_ROUTE)
    assert f"`{path}` is closed here" in error.message
    assert error.message.endswith(".")


def test_a_closed_route_names_what_would_open_it():
    assert classify("POST", "/v1/load_lora_adapter").refusal.message == (
        "`/v1/load_lora_adapter` is closed here: it is for operators, who reach vLLM directly. "
        "`routes.open: [/v1/load_lora_adapter]` in the gateway's settings would open it."
    )
    assert "routes.open" not in classify("GET", "/v1/realtime").refusal.message
    assert len(classify("GET", "/inference/" + "x" * 9000).refusal.message) < 1000


def test_what_the_operator_has_opened():
    opened = {"/sleep", "/invocations"}
    for method in ("GET", "POST"):
        route = classify(method, "/sleep", opened)
        assert (route.kind, route.path, route.refusal) == (Kind.OPENED, "/sleep", None)
    assert classify("POST", "/invocations", opened).kind is Kind.INVOCATIONS
    assert classify("GET", "/invocations", opened).kind is Kind.WRONG_METHOD
    assert classify("POST", "/wake_up", opened).kind is Kind.CLOSED


def test_every_open_route_has_series_and_is_not_closed_too():
    for path in {*ENDPOINTS} - {OTHER, "/invocations"}:
        assert why_closed(path) is None
        assert Kind.CLOSED not in {classify(method, path).kind for method in ("GET", "POST")}
        assert Kind.UNKNOWN is not classify("POST", path).kind


def test_what_is_not_counted_here_goes_on():
    assert sent_on(classify("POST", "/tokenize")).kind is Kind.TOKENIZE
    assert sent_on(classify("POST", "/v1/messages/count_tokens")).kind is Kind.MESSAGE_TOKENS


@pytest.mark.parametrize(
    ("path", "is_so"),
    [
        ("/v1/messages", True),
        ("/v1/messages/count_tokens", True),
        ("/v1/messages/batches", True),
        ("/v1/messagesx", False),
        ("/v1/chat/completions", False),
    ],
)
def test_who_speaks_anthropics_dialect(path, is_so):
    assert (voice_of(path) is ANTHROPIC) is is_so


@pytest.mark.parametrize(
    ("method", "path", "allowed"),
    [
        ("GET", "/v1/chat/completions", "POST"),
        ("DELETE", "/v1/completions", "POST"),
        ("POST", "/v1/models", "GET"),
        ("DELETE", "/v1/models/m", "GET"),
        ("post", "/v1/embeddings", "POST"),
    ],
)
def test_a_wrong_method_is_told_the_right_one(method, path, allowed):
    route = classify(method, path)
    assert (route.kind, route.methods) == (Kind.WRONG_METHOD, (allowed,))
    assert (route.refusal.code, route.refusal.status) == (Code.METHOD_NOT_ALLOWED, 405)
    assert allowed in route.refusal.message


@pytest.mark.parametrize(
    "path",
    [
        "/",
        "",
        "/v1",
        "/v1/chat/completions/",
        "/V1/chat/completions",
        "/v1//completions",
        "/v1/models/",
        "/v1/models/m/",
        "/chat/completions",
        "/v1/unknown",
        "/responses",
        "/v1/embeddings/x",
        "/../v1/chat/completions",
    ],
)
def test_everything_else_does_not_exist(path):
    route = classify("POST", path)
    assert route.kind is Kind.UNKNOWN
    assert (route.refusal.code, route.refusal.status) == (Code.NOT_FOUND, 404)
