from __future__ import annotations

from toolrest.gate.decision.repeated_calls import LoopWatch


def test_third_identical_result_nudges_and_the_fifth_change_is_refused() -> None:
    watch = LoopWatch()
    nudges = []
    for _ in range(4):
        assert watch.refusal("f", mutating=True) is None
        nudges.append(watch.record("f", "same", mutating=True))
    assert [bool(n) for n in nudges] == [False, False, True, True]
    assert "4 times" in (watch.refusal("f", mutating=True) or "")


def test_a_read_is_always_run_and_its_repeated_result_noted() -> None:
    watch = LoopWatch()
    notes = []
    for _ in range(6):
        assert watch.refusal("f", mutating=False) is None
        notes.append(watch.record("f", "same", mutating=False) or "")
    assert notes[:2] == ["", ""]
    assert "5 times" in notes[4]
    assert "change the arguments" in notes[5]
    assert watch.record("f", "another", mutating=False) is None


def test_results_that_differ_are_no_loop() -> None:
    watch = LoopWatch()
    for number in range(20):
        assert watch.refusal("f", mutating=True) is None
        assert watch.record("f", str(number), mutating=True) is None


def test_a_new_mutating_call_starts_the_count_anew() -> None:
    watch = LoopWatch()
    for number in range(10):
        assert watch.refusal("pytest", mutating=True) is None
        watch.record("pytest", "1 failed", mutating=True)
        watch.record(f"edit {number}", "ok", mutating=True)


def test_the_same_successful_write_again_and_again_is_a_loop() -> None:
    watch = LoopWatch()
    for _ in range(4):
        watch.record("write", "ok", mutating=True)
        watch.record("read", "text", mutating=False)
    assert watch.refusal("write", mutating=True)


def test_memory_is_bounded() -> None:
    watch = LoopWatch()
    for number in range(5_000):
        watch.record(str(number), "", mutating=False)
    assert len(watch._seen) <= 512
