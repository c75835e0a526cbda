from __future__ import annotations

from toolrest.gate.decision.repeated_calls import LoopWatch


def test_third_identical_result_nudges_and_the_fifth_call_is_refused() -> None:
    watch = LoopWatch()
    nudges = []
    for _ in range(4):
        assert watch.refusal("f") is None
        nudges.append(watch.record("f", "same", mutating=False))
    assert [bool(n) for n in nudges] == [False, False, True, False]
    assert "4 times" in (watch.refusal("f") or "")


def test_results_that_differ_are_no_loop() -> None:
    watch = LoopWatch()
    for number in range(20):
        assert watch.refusal("f") is None
        assert watch.record("f", str(number), mutating=False) is None


def test_a_new_mutating_call_starts_the_count_anew() -> None:
    watch = LoopWatch()
    for number in range(10):
        assert watch.refusal("pytest") is None
        watch.record("pytest", "1 failed", mutating=True)
        watch.record(f"edit {number}", "ok", mutating=True)


def test_the_same_successful_write_again_and_again_is_a_loop() -> None:
    watch = LoopWatch()
    for _ in range(4):
        watch.record("write", "ok", mutating=True)
        watch.record("read", "text", mutating=False)
    assert watch.refusal("write")
    assert watch.refusal("read")


def test_memory_is_bounded() -> None:
    watch = LoopWatch()
    for number in range(5_000):
        watch.record(str(number), "", mutating=False)
    assert len(watch._seen) <= 512
