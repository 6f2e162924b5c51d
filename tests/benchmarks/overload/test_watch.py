from benchmarks.overload.watch import Seen, seen_in

PAGE = """\
# TYPE vllm:num_requests_running gauge
vllm:num_requests_running{engine="0",model_name="m"} 3.0
# TYPE vllm:num_requests_waiting gauge
vllm:num_requests_waiting{engine="0",model_name="m"} 4.0
# TYPE vllm:generation_tokens_total counter
vllm:generation_tokens_total{engine="0",model_name="m"} 120.0
# TYPE vllm:num_preemptions_total counter
vllm:num_preemptions_total{engine="0",model_name="m"} 2.0
"""


def test_a_page_is_read_by_its_names():
    assert seen_in(PAGE) == Seen(waiting=4.0, running=3.0, generated_tokens=120.0, preemptions=2.0)


def test_a_page_without_them_is_all_zero():
    assert seen_in("") == Seen()
