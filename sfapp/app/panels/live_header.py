"""The header of a live page, above the tabs: the rolling verdict, silent ranks, lost data."""

from __future__ import annotations

from sfapp.app.theme import box, label_text, link
from sfapp.service.live import LiveRunSnapshot
from sfapp.service.live_rolling import RollingView
from sfapp.views import text


class LiveHeader:
    """The state of the job above the tabs. Unchanged parts are not sent again."""

    def __init__(self) -> None:
        """Build it empty, inside the current container."""
        self._facts: object = None
        self._shown: object = None
        self._cause: object = None
        with box("card live-head", "section").mark("live-head"):
            self._headline = label_text("", "h1", "live-headline").mark("headline")
            self._details = box("live-details")
            # The numbers of the headline change all the time; screen readers announce only a new cause.
            self._spoken = label_text("", "span", "visually-hidden")
            self._spoken.props["aria-live"] = "polite"
            self._box = box("live-state")

    def show(self, snapshot: LiveRunSnapshot) -> None:
        """Show a snapshot, updating the parts that differ."""
        self.show_rolling(snapshot.rolling)
        headline, kind = text.standing(len(snapshot.links), snapshot.silent_s, snapshot.left)
        silences = text.silences(snapshot.silent_s)
        counters = text.counters(snapshot.links, snapshot.aggregator)
        shown = headline, silences, counters, snapshot.verdict, snapshot.state.until, snapshot.rolling is None
        if shown == self._facts:
            return
        self._facts = shown
        self._box.clear()
        with self._box:
            with box("live-standing"):
                tag = "h1" if snapshot.rolling is None else "p"
                label_text(headline, tag, f"standing standing-{kind}").mark("standing")
                if snapshot.state.until is not None:
                    frozen = f"Frozen at {snapshot.at:%H:%M:%S} UTC"
                    label_text(frozen, "span", "badge badge-warn").mark("frozen")
            if silences:
                with box("lines silences", "ul"):
                    for silence in silences:
                        label_text(silence, "li")
            with box("live-facts"):
                for content, weight, meaning in counters:
                    badge = label_text(content, "span", "badge badge-warn" if weight == "warn" else "badge")
                    badge.props["title"] = meaning
                box("grow")
                if snapshot.verdict:
                    label_text("Newest verdict", "span", "muted")
                    link(snapshot.verdict["summary"], snapshot.verdict["href"], "badge").mark("newest-window")
                else:
                    label_text("No finished window yet", "span", "muted")

    def show_rolling(self, rolling: RollingView | None) -> None:
        """Show the verdict on the last steps."""
        self._headline.set_visibility(rolling is not None)
        self._details.set_visibility(rolling is not None)
        if rolling is None:
            return
        words = rolling.words
        if words == self._shown:
            return
        self._shown = words
        self._headline.text = words.headline
        self._headline.classes(replace=f"live-headline live-headline-{words.tone}")
        self._details.clear()
        with self._details:
            for detail in words.details:
                label_text(detail, "p", "muted").mark("headline-detail")
        finding = rolling.verdict.finding
        cause = rolling.verdict.kind, finding and (finding.stage, finding.ranks)
        if cause != self._cause:
            self._cause = cause
            self._spoken.text = words.headline
