"""Wrong tokens: a few are free, then each costs a longer pause, for each address by itself."""

from __future__ import annotations

from sfapp.app.token_guesses import (
    FREE_GUESSES,
    LONGEST_PAUSE_S,
    MAX_ADDRESSES,
    MISTAKES_EXPIRE_S,
    GuessLimiter,
)


class StoppedClock:
    """A clock that a test sets."""

    now = 1000.0

    def __call__(self) -> float:
        return self.now


def test_a_few_mistakes_cost_nothing() -> None:
    limiter = GuessLimiter(StoppedClock())
    for _ in range(FREE_GUESSES - 1):
        limiter.count_wrong("10.0.0.1")
    assert limiter.pause_s("10.0.0.1") == 0


def test_further_mistakes_cost_pauses_that_double() -> None:
    clock = StoppedClock()
    limiter = GuessLimiter(clock)
    pauses = []
    for _ in range(FREE_GUESSES + 9):
        limiter.count_wrong("10.0.0.1")
        pauses.append(limiter.pause_s("10.0.0.1"))
        clock.now += pauses[-1]
    assert pauses == [0, 0, 0, 0, 1, 2, 4, 8, 16, 32, 60, 60, 60, 60]
    assert limiter.pause_s("10.0.0.1") == 0


def test_a_day_of_guessing_is_a_few_guesses() -> None:
    clock = StoppedClock()
    limiter = GuessLimiter(clock)
    guesses, end = 0, clock.now + 86_400
    while clock.now < end:
        pause = limiter.pause_s("10.0.0.1")
        if pause:
            clock.now += pause
            continue
        guesses += 1
        limiter.count_wrong("10.0.0.1")
    assert guesses < 86_400 / LONGEST_PAUSE_S + 20


def test_addresses_do_not_share_their_mistakes() -> None:
    limiter = GuessLimiter(StoppedClock())
    for _ in range(FREE_GUESSES):
        limiter.count_wrong("10.0.0.1")
    assert limiter.pause_s("10.0.0.2") == 0
    assert limiter.pause_s("::ffff:10.0.0.1") == 1


def test_one_network_of_ipv6_is_one_address() -> None:
    limiter = GuessLimiter(StoppedClock())
    for number in range(FREE_GUESSES):
        limiter.count_wrong(f"2001:db8::{number}")
    assert limiter.pause_s("2001:db8::ffff") == 1
    assert limiter.pause_s("2001:db8:1::1") == 0


def test_mistakes_expire_and_the_right_token_ends_them() -> None:
    clock = StoppedClock()
    limiter = GuessLimiter(clock)
    for _ in range(FREE_GUESSES):
        limiter.count_wrong("a")
        limiter.count_wrong("b")
    limiter.reset("a")
    assert limiter.pause_s("a") == 0
    clock.now += MISTAKES_EXPIRE_S + 1
    limiter.count_wrong("b")
    assert limiter.pause_s("b") == 0


def test_no_more_addresses_are_remembered_than_there_is_room_for() -> None:
    limiter = GuessLimiter(StoppedClock())
    for number in range(MAX_ADDRESSES + 100):
        for _ in range(FREE_GUESSES):
            limiter.count_wrong(str(number))
    assert limiter.pause_s("0") == 0
    assert limiter.pause_s(str(MAX_ADDRESSES + 99)) == 1
