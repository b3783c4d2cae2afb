"""What an unknown name is answered with: the known names that it may mean."""

from __future__ import annotations

import pytest

from memprof.base.errors import close_to, near
from memprof.records.metrics import METRICS


@pytest.mark.parametrize(
    ("name", "first"),
    [
        ("rss_anon_bytes", "anon_end_bytes"),  # the part that few metrics have, though others are spelled more alike
        ("anon_bytes", "anon_end_bytes"),
        ("rss_pek_bytes", "rss_peak_bytes"),  # misspelled
        ("rss_swap_peek_bytes", "rss_swap_peak_bytes"),
        ("time_medium_ns", "time_median_ns"),
    ],
)
def test_metric_of_near_name(name: str, first: str) -> None:
    assert close_to(name, METRICS)[0] == first


def test_parts_that_many_names_have_suggest_none() -> None:
    known = ["xnnpack_on_bytes", "weights_on_bytes", "arena_on_bytes"]
    assert near("q_bytes", known) == "", "three names have that part"
    assert close_to("on_the_way", known) == [], "a part of two letters means nothing"
    assert near("arena", known) == "; did you mean arena_on_bytes?"
