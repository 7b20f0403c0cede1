"""Ensemble: forecasters of any kind -> one forecaster, with weights found on held-back windows of the data."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Self, Unpack

import numpy as np
from numpy.typing import NDArray

from logsparse.combine import HeldBackLoss, average, greedy_weights, joint_paths, middles, path_quantiles
from logsparse.data.calendar import Ints
from logsparse.data.columns import Columns
from logsparse.data.frame import Data
from logsparse.data.panel import Floats, Panel, SeriesId
from logsparse.data.times import When
from logsparse.errors import ConfigError, DataError, shown, whole
from logsparse.evaluation.backtest import numbered
from logsparse.forecast import Forecast, Forecaster
from logsparse.params import LEVELS, Diagnostics, refuse_changes
from logsparse.registry import class_saved_as, known_kinds, named
from logsparse.storage import a_list, entries, number, require, text, whole_number

if TYPE_CHECKING:
    from logsparse.folder import ModelFolder

# W windows, S series, H steps of the horizon, Q quantile levels, N sample paths

_MOST_WINDOWS = 1000
_WINDOWS = "count the windows to hold back; 0 gives all members the same weight."
_LEVELS = tuple(LEVELS)

log = logging.getLogger("logsparse")


class Ensemble(Forecaster):
    """Combine forecasters of any kind; their weights are found on the last windows of the data.

    `fit` holds back the last windows of each series, fits every member on the rest, and adds members one after the
    other, some of them several times, as long as the quantile loss of the combined forecast falls. Then the chosen
    members are fitted on all data. Quantiles and means are averaged with the weights; members that draw sample paths
    give the ensemble theirs. Time limits are those of the members, each of which is fitted twice, or once with
    `windows=0`.

    Parameters
    ----------
    members
        Forecasters, or names of them such as "ets", whose other parameters are the usual ones. They are not changed:
        clones are fitted.
    horizon
        Number of steps to forecast; that of the members if left out.
    windows
        Most windows per series to hold back, one horizon each; fewer if they would be more than half of the data. 0:
        all members weigh the same.

    Attributes
    ----------
    weights_
        After `fit`: the weight of each member, by name; they sum to 1.
    members_
        The fitted members with a weight above 0, by name.
    losses_
        Loss on the held-back windows of each member alone and, as "combined", of the ensemble, averaged over the
        series; 1 is the loss of a constant at the median of the held-back values, or of the best member if that is
        worse. Empty if nothing was held back.

    Raises
    ------
    ConfigError
        At `fit`, not here, if a parameter has a wrong value, or a member has, or needs a package that is missing. A
        member that cannot be fitted on the data is left out, and one line is logged; if none can, its error is raised.

    Examples
    --------
    >>> import polars as pl
    >>> import logsparse as ls
    >>> frame = pl.DataFrame({"unique_id": "a", "ds": range(70), "y": [float(t % 7) for t in range(70)]})
    >>> model = ls.Ensemble([ls.SeasonalNaive(3, season=7), ls.SeasonalNaive(3, season=1)]).fit(frame)
    >>> model.weights_
    {'SeasonalNaive': 1.0, 'SeasonalNaive-2': 0.0}
    >>> model.predict()["mean"].to_list()
    [0.0, 1.0, 2.0]
    """

    weights_: dict[str, float]
    members_: dict[str, Forecaster]
    losses_: dict[str, float]

    def __init__(self, members: Sequence[Forecaster | str], horizon: int | None = None, *, windows: int = 4) -> None:
        self.members, self.windows = members, windows
        # None until `check` knows the members.
        self.horizon: int = horizon  # type: ignore[assignment]

    def check(self) -> None:
        """Raise ConfigError for a parameter with a wrong value, of a member too."""
        self.members = _listed(self.members)
        if vars(self)["horizon"] is None:
            self.horizon = self._common_horizon()
        super().check()
        self.windows = whole("windows", self.windows, least=0, most=_MOST_WINDOWS, hint=_WINDOWS)
        self._made()

    def _common_horizon(self) -> int:
        first = next((member.clone() for member in self.members if isinstance(member, Forecaster)), None)
        if first is None:
            raise ConfigError(
                "An ensemble of names needs a horizon.", got="none", hint=f"write Ensemble({self.members}, horizon=24)."
            )
        first.check()
        return first.horizon

    def _made(self) -> dict[str, Forecaster]:
        """Return new forecasters with the parameters of the members, checked, by name."""
        made = [named(one, self.horizon) if isinstance(one, str) else one.clone() for one in self.members]
        by_name = dict(zip(numbered([type(member).__name__ for member in made]), made, strict=True))
        for name, member in by_name.items():
            member.check()
            if member.horizon != self.horizon:
                raise ConfigError(
                    "Members of an ensemble must have its horizon.",
                    got=f"{member.horizon} for {name}, {self.horizon} for the ensemble",
                    hint="give all of them one horizon.",
                )
        if all(member.point_only for member in made):
            raise ConfigError(
                "An ensemble needs a member with quantiles.",
                got=f"{', '.join(by_name)}, with one value per step",
                hint="add another one, such as 'seasonal-naive'.",
            )
        return by_name

    def _fit(self, panel: Panel) -> None:
        made = self._made()
        chooses = len(made) > 1 and self.windows > 0
        held = _HeldBack.of(panel, self.horizon, self.windows) if chooses else None
        if held is None:
            if chooses:
                log.warning("Ensemble: no series is long enough to hold back a window, so all members weigh the same")
            members = _fitted(made, panel)
            weights = {name: (name in members) / len(members) for name in made}
            losses = dict[str, float]()
        else:
            weights, losses = _weighed(made, held)
            members = {name: _fit_one(member, panel) for name, member in made.items() if weights[name]}
        self.members_, self.weights_, self.losses_ = members, weights, losses

    def fine_tune(self, data: Data, *, until: When | None = None, **limits: Any) -> Self:
        """Continue the training of all members on new data, which may have new series; the weights stay.

        Parameters
        ----------
        data
            Frame, path or Panel with the columns of `fit`.
        until
            Time of the last step to use; each series' end if left out.
        **limits
            `steps`, `minutes` and `lr`, as for `LogSparse.fine_tune`.

        Returns
        -------
        Self
            The forecaster itself.

        Raises
        ------
        NotFittedError, ConfigError, DataError
            Before `fit`, if a member cannot be trained further, or if the data break a rule.
        """
        panel = self._read(data)
        if fixed := [name for name, member in self.members_.items() if not hasattr(member, "fine_tune")]:
            raise ConfigError(
                "Only an ensemble whose members are all networks can be trained further.",
                got=f"one with {', '.join(fixed)}",
                hint="fit it again, on all data.",
            )
        for member in self.members_.values():
            member.fine_tune(panel, until=until, **limits)  # type: ignore[attr-defined]
            _refuse_interrupted(member)
        self.panel_ = next(iter(self.members_.values())).panel_
        return self

    def learned_until(self) -> dict[SeriesId, int]:
        """Return the time of the last step that any member learned from, per series."""
        last = super().learned_until()
        for member in self.members_.values():
            ends = member.learned_until()
            last = {name: max(last.get(name, end), ends.get(name, end)) for name, end in {**ends, **last}.items()}
        return last

    def _read(self, data: Data | None, **columns: Unpack[Columns]) -> Panel:
        panel = super()._read(data, **columns)
        for member in self.members_.values():
            if member.horizon != self.horizon:
                raise ConfigError(
                    "A fitted ensemble forecasts the horizon of its members.",
                    got=f"horizon={self.horizon} for members of {member.horizon}",
                    hint=f"fit again, or set the horizon back to {member.horizon}.",
                )
        return panel

    def _learned(self) -> list[str]:
        known = super()._learned()
        return [*known, *(f"{self.weights_[name]:.2f} {name}" for name in self.members_)] if known else []

    def _remembered(self) -> int | None:
        needed = [member._remembered() for member in self.members_.values()]  # noqa: SLF001
        return None if None in needed else max(steps for steps in needed if steps is not None)

    def diagnostics(self) -> Diagnostics:
        """Return the settings, and the weights and losses of the members."""
        if not hasattr(self, "panel_"):
            return super().diagnostics()
        members = {name: member.diagnostics().settings for name, member in self.members_.items()}
        shown_ = {"horizon": self.horizon, "windows": self.windows, "weights": self.weights_, "losses": self.losses_}
        return Diagnostics({**shown_, **members})

    def settings(self) -> dict[str, Any]:
        """Return the parameters as plain JSON; a name as the forecaster that it stands for."""
        self.check()
        written = [{"kind": type(one).__name__, "settings": one.settings()} for one in self._made().values()]
        return {"members": written, "horizon": self.horizon, "windows": self.windows}

    @classmethod
    def read_settings(cls, written: Mapping[str, Any]) -> dict[str, Any]:
        """Return the parameters of the constructor that `settings` was made from."""
        return {**written, "members": [_unfitted(one) for one in a_list("settings/members", written["members"])]}

    @classmethod
    def restored(cls, written: ModelFolder, **changed: Any) -> Self:
        """Return the ensemble that was saved; `changed` goes to all members whose `changeable` has it."""
        self = super().restored(written)
        members = [*self.members_.values()]
        free = sorted({name for member in members for name in type(member).changeable})
        refuse_changes("the members of a saved ensemble", free, changed)
        for name, value in changed.items():
            for member in members:
                if name in type(member).changeable:
                    setattr(member, name, value)
        for member in members:
            member.check()
        return self

    def _state(self) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        members, arrays = [], dict[str, NDArray[Any]]()
        for place, (name, member) in enumerate(self.members_.items()):
            learned, own = member._state()  # noqa: SLF001
            kind = {"name": name, "kind": type(member).__name__, "settings": member.settings()}
            members.append({**kind, "learned": learned})
            arrays |= {f"{place}/{key}": array for key, array in own.items()}
        return {"weights": self.weights_, "losses": self.losses_, "members": members}, arrays

    def _restore(self, facts: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]) -> None:
        entries("learned", facts, "weights", "losses", "members")
        weights = entries("learned/weights", facts["weights"])
        self.weights_ = {name: number(f"learned/weights/{name}", weight, 0, 1) for name, weight in weights.items()}
        losses = entries("learned/losses", facts["losses"])
        self.losses_ = {name: number(f"learned/losses/{name}", loss, 0) for name, loss in losses.items()}
        self.members_ = {}
        for place, one in enumerate(a_list("learned/members", facts["members"])):
            entries("learned/members", one, "name", "kind", "settings", "learned")
            member = _unfitted(one)
            whole_number("learned/members/horizon", member.horizon, self.horizon, self.horizon)
            # They have learned from the data of the ensemble, which the folder holds once.
            member.panel_, member.columns_ = self.panel_, self.columns_
            own = {key.partition("/")[2]: array for key, array in arrays.items() if key.startswith(f"{place}/")}
            member._restore(one["learned"], own)  # noqa: SLF001
            self.members_[text("learned/members/name", one["name"])] = member
        chosen = [name for name, weight in self.weights_.items() if weight > 0]
        require("learned/members", f"those with a weight, {chosen}", [*self.members_], holds=chosen == [*self.members_])
        total = sum(self.weights_.values())
        require("learned/weights", "of a sum of 1", total, holds=abs(total - 1) < 1e-9)

    def _forecast(self, panel: Panel, levels: tuple[float, ...]) -> Forecast:
        parts = {name: _forecast_of(member, panel, levels) for name, member in self.members_.items()}
        return replace(self._combined([*parts.values()]), samples=self._paths(panel, parts))

    def summaries(self, histories: Sequence[Panel], levels: tuple[float, ...]) -> Iterator[Forecast]:
        """Forecast all histories, without samples."""
        of_members = [_summaries_of(member, histories, levels) for member in self.members_.values()]
        return (self._combined(parts) for parts in zip(*of_members, strict=True))

    def _combined(self, parts: Sequence[Forecast]) -> Forecast:
        weights = [self.weights_[name] for name in self.members_]
        mean_SH = average([part.mean for part in parts], weights)
        quantiles_SQH = average([part.quantiles for part in parts], weights)
        return Forecast(parts[0].panel, mean_SH, parts[0].levels, quantiles_SQH)

    def _paths(self, panel: Panel, parts: Mapping[str, Forecast]) -> Floats | None:
        """Return paths of the members that have them, with the quantiles of all; None if no member has any."""
        having = {name: part.samples for name, part in parts.items() if part.samples is not None}
        if not having:
            return None
        count = min(paths_SNH.shape[1] for paths_SNH in having.values())
        marginals = [
            path_quantiles(having[name], count)
            if name in having
            else _forecast_of(member, panel, middles(count)).quantiles
            for name, member in self.members_.items()
        ]
        combined_SNH = average(marginals, [self.weights_[name] for name in self.members_])
        return joint_paths([*having.values()], [self.weights_[name] for name in having], combined_SNH)


def _listed(members: object) -> list[Forecaster | str]:
    """Return the members as a list of forecasters and names."""
    if isinstance(members, (str, Forecaster)) or not isinstance(members, (Sequence, np.ndarray)) or not len(members):
        raise ConfigError(
            "An ensemble has a list of forecasters, or of their names.",
            got=shown(members),
            hint='write Ensemble([LogSparse(horizon=24), "ets"]).',
        )
    for member in members:
        if not isinstance(member, (str, Forecaster)):
            raise ConfigError(
                "A member of an ensemble must be a forecaster with its settings, or a name.",
                got=f"the class {member.__name__}" if isinstance(member, type) else shown(member),
                hint='write Ensemble([LogSparse(horizon=24), "ets"]).',
            )
    return [str(member) if isinstance(member, str) else member for member in members]


def _fitted(members: Mapping[str, Forecaster], panel: Panel) -> dict[str, Forecaster]:
    """Fit each of the members; leave out those that refuse the data, unless all do."""
    fitted, refused = {}, None
    for name, member in members.items():
        try:
            fitted[name] = _fit_one(member, panel)
        except DataError as error:
            refused = refused or error
            log.warning("Ensemble: %s is left out: %s", name, error)
    if not fitted and refused is not None:
        raise refused
    return fitted


def _fit_one(member: Forecaster, panel: Panel) -> Forecaster:
    member.fit(panel)
    _refuse_interrupted(member)
    return member


def _refuse_interrupted(member: Forecaster) -> None:
    """Raise KeyboardInterrupt if the training was interrupted: a network ends it and keeps its best weights."""
    if (history := getattr(member, "history_", None)) is not None:
        from logsparse.train.loop import INTERRUPTED

        if history.ended == INTERRUPTED:
            raise KeyboardInterrupt


def _weighed(members: Mapping[str, Forecaster], held: _HeldBack) -> tuple[dict[str, float], dict[str, float]]:
    """Return the weights and the losses of the members, clones of which are fitted before the held-back windows."""
    tried = _fitted({name: member.clone() for name, member in members.items()}, held.rest)
    parts = [held.forecast(member) for member in tried.values()]
    loss = HeldBackLoss(held.truth_WSH, parts, _LEVELS)
    found = dict(zip(tried, greedy_weights(parts, loss).tolist(), strict=True))
    losses = {name: loss(part) for name, part in zip(tried, parts, strict=True)}
    losses["combined"] = loss(average(parts, [*found.values()]))
    return {name: found.get(name, 0.0) for name in members}, losses


def _unfitted(written: Any) -> Forecaster:
    """Return the forecaster that a folder describes, without what it has learned."""
    entries("members", written, "kind", "settings")
    kind = class_saved_as(text("members/kind", written["kind"]))
    if kind is None:
        raise DataError(
            f"Members of a saved ensemble must be of kinds that this logsparse knows: {', '.join(known_kinds())}.",
            got=written["kind"],
            hint=f"if it is a class of your own, call logsparse.register({written['kind']}) first; else update "
            "logsparse.",
        )
    member = kind(**kind.read_settings(entries("members/settings", written["settings"])))
    member.check()
    return member


def _forecast_of(member: Forecaster, panel: Panel, levels: tuple[float, ...]) -> Forecast:
    if member.point_only:
        return next(_summaries_of(member, [panel], levels))
    return member._forecast(panel, levels)  # noqa: SLF001 - the panel is prepared, and samples are wanted


def _summaries_of(member: Forecaster, histories: Sequence[Panel], levels: tuple[float, ...]) -> Iterator[Forecast]:
    """Yield the forecast of each history; a forecaster of one value per step has it at every level."""
    if not member.point_only:
        yield from member.summaries(histories, levels)
        return
    for part in member.summaries(histories, member.check_quantiles(None)):
        yield replace(part, levels=levels, quantiles=np.repeat(part.quantiles, len(levels), axis=1))


@dataclass(frozen=True)
class _HeldBack:
    """The data before the held-back windows, and the windows of the series that are long enough to have them."""

    rest: Panel
    scored: Panel
    cutoffs_WS: Ints
    horizon: int

    @classmethod
    def of(cls, panel: Panel, horizon: int, windows: int) -> _HeldBack | None:
        """Hold back at most the last half of each series; None if no series has room for a window."""
        room_S = np.minimum(panel.lengths // (2 * horizon), windows)
        # As many windows as possible, over all series together.
        count = max(range(1, windows + 1), key=lambda number: number * int((room_S >= number).sum()))
        left_S = panel.lengths - count * horizon
        kept_S = room_S >= count
        for series in np.flatnonzero(kept_S).tolist():
            kept_S[series] = not np.isnan(panel[series][: left_S[series]]).all()
        if not kept_S.any():
            return None
        scored = panel if kept_S.all() else panel.keep(kept_S)
        cutoffs_WS = scored.lengths - horizon * np.arange(count, 0, -1)[:, None]
        return cls(panel.cut(np.where(kept_S, left_S, panel.lengths)), scored, cutoffs_WS, horizon)

    @property
    def truth_WSH(self) -> Floats:
        """The held-back values."""
        cells_WSH = (self.scored.indptr[:-1] + self.cutoffs_WS)[..., None] + np.arange(self.horizon)
        return np.asarray(self.scored.values[cells_WSH])

    def forecast(self, member: Forecaster) -> Floats:
        """Return the quantiles (W, S, Q, H) of a member that was fitted on the rest."""
        histories = [member.history(self.scored.cut(lengths_S)) for lengths_S in self.cutoffs_WS]
        return np.stack([part.quantiles for part in _summaries_of(member, histories, _LEVELS)])
