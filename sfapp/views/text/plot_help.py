"""How to read each plot, for someone who sees it for the first time. Keyed by the figure function's name."""

from __future__ import annotations

from collections.abc import Mapping

PLOT_TITLES: Mapping[str, str] = {
    "frontier_steps": "Where the step's time is first exposed",
    "prefix_crossings": "Who reaches each boundary when",
    "step_timeline": "Step by step",
    "routing_pareto": "Routing set",
    "ambiguity_plane": "Ambiguity plane",
    "verdict_regions": "Verdict map",
    "routing_over_tau": "Routing set over τC",
    "rank_step_heatmap": "Rank × step",
    "handover_matrix": "Hand-overs of the lead",
    "rules": "What other rules would say",
    "node_ranks": "Ranks of a node",
    "node_sparklines": "Course of each rank of a node",
    "node_skew": "Skew of a node",
    "straggler_distances": "Which rank differs",
    "straggler_scores": "Abnormality of each rank",
    "blame_path": "From the cause to its victim",
    "operator_timeline": "The suspect beside a healthy peer",
    "operator_frequency": "How often an operator occurs",
    "collective_split": "Waiting against transfer",
}
"""What each plot of a window is called where it is spoken of: as over the plot, but for a node's number."""

HINTS: Mapping[str, str] = {
    "frontier_steps": (
        "At each stage boundary the line stands where the last rank stood. A rise is step time that shows "
        "for the first time, and that stage is charged with it. While one rank works and others wait for "
        "it, the same seconds pass for all: they are charged once, never again to those that waited. "
        "Maxima added up (dotted) count them twice, means (dashed) hide slow ranks."
    ),
    "prefix_crossings": (
        "Each line is one rank's time used since the step began, and the highest one at a boundary sets the "
        "frontier. Where lines cross, another rank becomes the last: what comes before and what comes after "
        "has to be looked for in different places. Where lines meet, ranks wait for each other."
    ),
    "step_timeline": (
        "One bar a step, split by the stage that first exposed the time. Below, the rank that was last at "
        "the aimed-at stage: a level row of dots is one rank again and again, scattered dots are ranks "
        "taking turns."
    ),
    "routing_pareto": (
        "Stages by their share of the exposed time. The filled ones together reach the threshold τC: the "
        "delay is almost surely among them."
    ),
    "ambiguity_plane": (
        "Right: the stage holds much of the exposed time. Up: clipping that stage alone shortens the step. "
        "The bar reaches to what is gained if the waits it causes vanish too; a long bar means the answer "
        "depends on waiting."
    ),
    "verdict_regions": (
        "Each field is one verdict. Within it, moving γA or γG changes nothing; across its edge, the label "
        "changes. The further the dot is from an edge, the less the verdict depends on these two gates."
    ),
    "routing_over_tau": (
        "A bar begins where the stages before it no longer add up to τC. A long way from the line to the "
        "next edge means that the choice of τC hardly matters."
    ),
    "rank_step_heatmap": (
        "One cell a rank and step. A dark row is one slow rank, a dark column a slow step for all, regular "
        "stripes something periodic, scattered dark cells ranks taking turns."
    ),
    "handover_matrix": (
        "How often the rank of the column overtook the rank of the row as the last one, within a step. An "
        "empty matrix means that whoever is last first stays last."
    ),
    "rules": (
        "What simpler summaries of the same numbers would blame. A total above the step counts waiting "
        "twice; one below it hides slow ranks."
    ),
    "window_timeline": (
        "One bar a window, as high as its mean step. The strip below is thin and grey where a window is "
        "quiet, full and coloured where one calls for action. Click a window to open it."
    ),
    "run_history": (
        "Triangles are windows that call for action. The dots at the bottom show which rank each of them "
        "aims at, in the colour of the stage."
    ),
    "node_ranks": (
        "One tile a rank: its time in the aimed-at stage and how often it is the last one there. ▲ marks a "
        "rank that holds the others back."
    ),
    "node_sparklines": "All ranks on one scale: a rank that stands out in height is slower, not noisier.",
    "node_skew": (
        "Solid: how far the node's slowest rank is from its typical one. Hatched: how far the whole node is "
        "from the others. A long hatched bar points at the host, a long solid one at a rank."
    ),
    "straggler_distances": (
        "One cell for any two ranks: the darker, the less they complete their operators at the same time in "
        "a step. A dark row and column is one rank unlike all others; a dark block in a corner is several "
        "that differ together; no pattern means that nobody stands out."
    ),
    "straggler_scores": (
        "A rank's mean distance from all others. One long bar is one odd rank. It says which rank differs, "
        "not that it is slow: one that is early differs too."
    ),
    "blame_path": (
        "Left is where the time was lost, right who was late for it last. Each edge says why the later one "
        "had to wait for the one before; a change of row is a rank held up by another."
    ),
    "operator_timeline": (
        "Above what the suspect did in one step, below what a typical rank did, on one time axis. Look where "
        "the two stop matching: an operator that is longer above is the culprit, one that starts later has "
        "been waiting. A bar lies under the one that encloses it."
    ),
    "operator_frequency": (
        "How often one operator begins, over time and ranks. A pale stretch in one row is a rank that falls "
        "behind, one across all rows is a stall that all share; frames mark where half or more is missing."
    ),
    "collective_split": (
        "One bar a collective. Hatched is how long the first rank to arrive waited for the last: someone was "
        "late. Solid is the transfer itself: the network. Grey ones cannot be told apart."
    ),
    "comparison_bars": (
        "Each bar is one side's mean step, cut where another stage begins to hold it up. What grew from one "
        "bar to the next is what the change is made of."
    ),
    "comparison_waterfall": (
        "Start at A's step and add what each stage gained (solid) or lost (hatched): you arrive at B's step "
        "exactly, because no second is counted twice. The large block is where to look."
    ),
    "comparison_spread": (
        "Each dot is one window. Where the dots of two sides overlap, their difference may be no more than "
        "what the job does anyway; triangles are windows that call for action."
    ),
}
"""A few sentences a plot."""

STAGE_MEANING: Mapping[str, str] = {
    "data": "waiting for the next batch",
    "forward": "forward pass and loss",
    "backward": "backward pass, and the gradient exchange the host waits for in it",
    "callbacks": "logging, metrics, checkpoints and other code between passes",
    "optimizer": "optimizer step",
    "other": "what the named stages leave over",
}
"""What each family of stages holds."""

LIVE_HINTS: Mapping[str, str] = {
    "live_steps": (
        "Ranks that wait for each other take the same time for a step, whoever is slow: the lines lie on "
        "each other then, and only their level says that something is. Where they part, ranks run ahead."
    ),
    "live_ranks": (
        "Blue ranks are faster than the median rank, vermilion ones slower, over their newest steps. A rank "
        "that says nothing any more is marked with for how long. Ranks that wait for each other look alike."
    ),
    "live_skew": (
        "By how much the slowest rank is above the median rank, and the slowest node's median above the "
        "fastest node's. Small where ranks wait for each other, whoever holds them up: windows say who."
    ),
    "live_courses": (
        "A line a rank, all on one scale from 0: a rank that stands out in height is slower, not noisier. A "
        "line that ends early belongs to a rank that says nothing any more, or is behind."
    ),
    "live_layers": (
        "Host time in each layer of the model, from the newest finished window. On a GPU this is what "
        "launching the work takes, not what the work takes."
    ),
    "samples_over_time": (
        "What the machine said of itself, as it was read once a second; coarser the older it is. Read beside "
        "the step times, never part of them."
    ),
}
"""How to read each plot of a job that runs."""
