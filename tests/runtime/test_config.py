"""Settings: defaults, environment, validation, overrides and the epoch."""

from __future__ import annotations

import pytest

from ridgeline.config import Config, ConfigError, config


def test_environment_gives_first_values() -> None:
    made = Config.from_environment(
        {
            "RIDGELINE_THREADS": "3",
            "RIDGELINE_CACHE_MAX_BYTES": "64M",
            "RIDGELINE_TIER": "compiled",
            "RIDGELINE_HUGE_PAGES": "off",
        }
    )
    assert (made.threads, made.cache_max_bytes) == (3, 64 << 20)
    assert (made.tier, made.huge_pages) == ("compiled", False)


def test_an_empty_variable_is_none() -> None:
    """`RIDGELINE_VERIFY= command` is how a shell leaves a variable out of one command."""
    empty = {"RIDGELINE_VERIFY": "", "RIDGELINE_THREADS": " ", "RIDGELINE_TIER": ""}
    assert Config.from_environment(empty) == Config()


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("THREADS", "many"),
        ("THREADS", "-1"),
        ("TIER", "fast"),
        ("HUGE_PAGES", "maybe"),
        ("ISA", "mmx"),
    ],
)
def test_a_bad_variable_is_named(name: str, text: str) -> None:
    with pytest.raises(ConfigError, match=f"RIDGELINE_{name}"):
        Config.from_environment({f"RIDGELINE_{name}": text})


@pytest.mark.parametrize(
    ("name", "value"),
    [("threads", -1), ("threads", True), ("threads", 2.0), ("tier", "x"), ("cache_dir", 3)],
)
def test_a_bad_value_is_refused_and_changes_nothing(name: str, value: object) -> None:
    made = Config()
    before, epoch = getattr(made, name), made.epoch
    with pytest.raises(ConfigError, match=name):
        setattr(made, name, value)
    assert getattr(made, name) == before
    assert made.epoch == epoch


def test_the_instruction_set_is_fixed_at_import() -> None:
    assert Config.from_environment({"RIDGELINE_ISA": "avx2"}).isa == "avx2"
    other = "auto" if config.isa == "avx2" else "avx2"
    with pytest.raises(ConfigError, match="RIDGELINE_ISA"):
        config.isa = other  # type: ignore[assignment]


def test_unknown_settings_are_refused() -> None:
    with pytest.raises(ConfigError, match="thread"):
        Config().thread = 3  # type: ignore[attr-defined]
    with pytest.raises(ConfigError):
        Config().epoch = 3


def test_epoch_moves_with_changes_only() -> None:
    made = Config()
    epoch = made.epoch
    made.threads = made.threads
    assert made.epoch == epoch
    made.threads = 7
    assert made.epoch > epoch


def test_override_restores_even_after_an_error() -> None:
    made = Config()
    with pytest.raises(ConfigError), made.override(threads=2, tier="nonsense"):
        pass
    assert (made.threads, made.tier) == (0, "auto")
    with made.override(threads=2) as inside:
        assert inside.threads == 2
    assert made.threads == 0
