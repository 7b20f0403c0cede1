"""Parameters of a forecaster that trains a network -> checked, as plain JSON, and as the Config of a training."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar, Self, Unpack

from logsparse.attention.pattern import Pattern
from logsparse.changes import SETTINGS, Settings, apply, check_setting
from logsparse.config import Config, Method
from logsparse.defaults import a_config, check_agrees
from logsparse.errors import ConfigError, NotFittedError, above_zero, truth, whole
from logsparse.forecast import Forecaster
from logsparse.train.distributed import device_named

if TYPE_CHECKING:
    from logsparse.folder import ModelFolder

# Largest seed: torch's generators take 64 bits, and several seeds may follow one another.
_SEEDS = 2**62
_MOST_PATHS = _LONGEST_CONTEXT = 100_000
_MOST_STEPS = 10**9


class Configured(Forecaster):
    """A forecaster with a `Config`, parts of which may be given by name; `LogSparse` describes its parameters."""

    _further: ClassVar[Mapping[str, Any]] = {"device": "auto", "verbose": True}
    _optional = SETTINGS
    changeable = ("seed", "device", "minutes", "samples", "method", "verbose")
    device: str
    verbose: bool
    config_: Config

    def __init__(
        self,
        horizon: int,
        *,
        context: int | None = None,
        config: Config | None = None,
        steps: int | None = None,
        minutes: float | None = None,
        seed: int = 0,
        samples: int | None = None,
        **settings: Unpack[Settings],
    ) -> None:
        super().__init__(horizon)
        self.context, self.config, self.seed, self.samples = context, config, seed, samples
        self.steps, self.minutes = steps, minutes
        for name, value in {**self._further, **settings}.items():
            self._check_name(name)
            if name in SETTINGS:
                check_setting(name, value)
            vars(self)[name] = value  # `method` is a property, which asks for this one before `fit`

    def check(self) -> None:
        super().check()
        if self.samples is not None:
            hint = "leave it out for as many as accurate quantiles need."
            self.samples = whole("samples", self.samples, most=_MOST_PATHS, hint=hint)
        self.seed = whole("seed", self.seed, least=0, most=_SEEDS, hint="any small whole number will do.")
        if self.context is not None:
            hint = "count the steps of history the model sees."
            self.context = whole("context", self.context, most=_LONGEST_CONTEXT, hint=hint)
        if self.minutes is not None:
            self.minutes = above_zero("minutes", self.minutes, hint="leave it out for no limit.")
        if self.steps is not None:
            hint = "leave it out for as many as the settings say."
            self.steps = whole("steps", self.steps, most=_MOST_STEPS, hint=hint)
        vars(self).update(self._changes())
        self.verbose = truth("verbose", self.verbose)
        device = device_named(self.device)
        self.device = "auto" if self.device == "auto" else str(device)
        if self.config is not None:
            check_agrees(self.config, horizon=self.horizon, context=self.context)
            apply(self.config, self._changes())

    def _changes(self) -> dict[str, Any]:
        """Return the single settings that were given, checked."""
        return {name: check_setting(name, vars(self)[name]) for name in SETTINGS if name in vars(self)}

    def _configured(self, base: Config) -> Config:
        """Return the settings of a training: those of `base`, and those that were given by name in their place."""
        limits = {"steps": self.steps, "minutes": self.minutes}
        given = {name: limit for name, limit in limits.items() if limit is not None}
        return apply(base, {**self._changes(), **given})

    def settings(self) -> dict[str, Any]:
        """Return the parameters as plain JSON."""
        changes = self._changes()
        if "patterns" in changes:
            changes["patterns"] = [pattern.to_dict() for pattern in changes["patterns"]]
        config = None if self.config is None else a_config(self.config).to_dict()
        # A round trip through JSON turns tuples into lists, as they are read back from a folder.
        return {**super().settings(), **json.loads(json.dumps({**changes, "config": config}))}

    @classmethod
    def read_settings(cls, written: Mapping[str, Any]) -> dict[str, Any]:
        """Return the parameters of the constructor that `settings` was made from."""
        config = None if written["config"] is None else Config.from_dict(written["config"])
        patterns = [Pattern.from_dict(pattern) for pattern in written.get("patterns", ())]
        return {**written, "config": config, **({"patterns": tuple(patterns)} if patterns else {})}

    # Not `-> Method`: jedi completes nothing on an object with a property whose type is a Literal.
    @property
    def method(self) -> str:
        """Way of forecasting, from `config_`; may be set to another one that the same training serves."""
        if hasattr(self, "config_"):
            return self.config_.method
        if "method" not in vars(self):
            raise NotFittedError(self)
        return str(vars(self)["method"])

    @method.setter
    def method(self, method: Method) -> None:
        if not hasattr(self, "config_"):
            vars(self)["method"] = method
            return
        changed = replace(self.config_, method=method)
        trained = "two-way and direct" if self.config_.masks_future_lags else "ancestral and mean-path"
        if changed.masks_future_lags != self.config_.masks_future_lags:
            raise ConfigError(
                "A network forecasts as it was trained to: by two-way or direct, or by ancestral or mean-path.",
                got=f"{method} of a network trained for {trained}",
                hint=f"fit it with method={method!r} in its config.",
            )
        self.config_ = changed
        if "method" in vars(self):
            vars(self)["method"] = method

    @classmethod
    def restored(cls, written: ModelFolder, *, method: Method | None = None, **changed: Any) -> Self:
        """Return the forecaster that was saved, with some of its `changeable` parameters, or its method, changed."""
        self = super().restored(written, **changed)
        if method is not None:
            self.method = method
        return self
