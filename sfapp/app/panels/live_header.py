"""The header of a live page, above the tabs: the rolling verdict, silent ranks, lost data."""

from __future__ import annotations

from sfapp.app.theme import box, label_text, link
from sfapp.service.live import LiveRunSnapshot
from sfapp.service.live_rolling import RollingView
from sfapp.service.standstills import Standstill
from sfapp.views import text
from sfapp.views.address import problem_page


class LiveHeader:
    """The state of the job above the tabs. Unchanged parts are not sent again."""

    def __init__(self) -> None:
        """Build it empty, inside the current container."""
        self._facts: object = None
        self._shown: object = None
        self._cause: object = None
        self._standstill: Standstill | None = None
        with box("card live-head", "section").mark("live-head"):
            self._headline = label_text("", "h1", "live-headline").mark("headline")
            self._details = box("live-details")
            # The numbers of the headline change all the time; screen readers announce only a new cause.
            self._spoken = label_text("", "span", "visually-hidden")
            self._spoken.props["aria-live"] = "polite"
            self._box = box("live-state")

    def show(self, snapshot: LiveRunSnapshot) -> None:
        """Show a snapshot, updating the parts that differ."""
        self._standstill = snapshot.standstill
        self.show_rolling(snapshot.rolling)
        headline, kind = text.standing(len(snapshot.links), snapshot.silent_s, snapshot.left)
        silences = text.silences(snapshot.silent_s)
        counters = text.counters(snapshot.links, snapshot.aggregator)
        has_headline = snapshot.rolling is not None or snapshot.standstill is not None
        shown = headline, silences, counters, snapshot.verdict, snapshot.state.until, not has_headline
        if shown == self._facts:
            return
        self._facts = shown
        self._box.clear()
        with self._box:
            with box("live-standing"):
                tag = "p" if has_headline else "h1"
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
        """Show the standstill, if the job stands still, else the verdict on the last steps."""
        has_headline = self._standstill is not None or rolling is not None
        self._headline.set_visibility(has_headline)
        self._details.set_visibility(has_headline)
        if self._standstill is not None:
            roll = self._standstill.roll
            details = (*text.standstill_details(roll), text.standstill_action(roll))
            words = text.RollingWords(text.standstill_sentence(roll), details, "alarm")
            cause: object = "standstill", roll.holders
        elif rolling is not None:
            words, finding = rolling.words, rolling.verdict.finding
            cause = rolling.verdict.kind, finding and (finding.stage, finding.ranks)
        else:
            return
        if words == self._shown:
            return
        self._shown = words
        self._headline.text = words.headline
        self._headline.classes(replace=f"live-headline live-headline-{words.tone}")
        self._details.clear()
        with self._details:
            for detail in words.details:
                label_text(detail, "p", "muted").mark("headline-detail")
            if self._standstill is not None:
                link("Problem", problem_page(self._standstill.problem()), "badge").mark("standstill-problem")
        if cause != self._cause:
            self._cause = cause
            self._spoken.text = words.headline
