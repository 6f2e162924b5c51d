from gateway.replay.virtual_time import VirtualTime


def test_timers_go_off_in_order_and_see_their_own_time():
    time, seen = VirtualTime(100.0), []
    for delay in (3.0, 1.0, 2.0, 1.0):
        time.call_later(delay, lambda delay=delay: seen.append((delay, time())))
    time.run_until(102.0)
    assert seen == [(1.0, 101.0), (1.0, 101.0), (2.0, 102.0)]
    assert time.now == 102.0


def test_a_timer_that_is_cancelled_does_not_go_off():
    time, seen = VirtualTime(0.0), []
    time.call_later(1.0, lambda: seen.append(1)).cancel()
    time.run_until(5.0)
    assert (seen, time.now) == ([], 5.0)


def test_timers_may_set_others_until_none_is_left():
    time, seen = VirtualTime(0.0), []

    def again():
        seen.append(time.now)
        if len(seen) < 3:
            time.call_later(10.0, again)

    time.call_later(0.0, again)
    time.run_out()
    assert seen == [0.0, 10.0, 20.0]


def test_time_never_goes_back():
    time = VirtualTime(50.0)
    time.run_until(10.0)
    assert time.now == 50.0
