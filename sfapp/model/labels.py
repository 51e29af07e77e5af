"""Every label and reason a diagnosis can carry, with its meaning (accounting.md §7; paper Appendix B)."""

from __future__ import annotations

from collections.abc import Mapping

LABELS: Mapping[str, str] = {
    "frontier_accounting": "An additive split of the exposed step time over stages; no claim of cause.",
    "telemetry_limited": "The signal is incomplete or does not close, so stronger claims are withheld.",
    "role_aware_needed": "Ranks play different roles; diagnose one role's group instead of all ranks.",
    "gradient_accumulation_ambiguous": "Micro-steps were collapsed or mixed; data and backward cannot be "
    "told apart.",
    "direct_exposure": "Frontier, raw durations, spread and static gain agree: time in this stage is the "
    "delay itself.",
    "sync_wait_dependent": "The frontier share is high but clipping the stage alone gains little: what a fix "
    "brings depends on the waits it removes.",
    "likely_sync_wait": "As sync_wait_dependent, and the leading rank falls behind the others in this stage.",
    "co_critical": "Several stages or ranks could hold the step back; more evidence is needed to choose.",
    "forward_device_supported": "Sampled device events confirm that forward time is device work.",
    "forward_spillover_suspected": "Forward device time is high, but the host sees the cost later.",
    "forward_host_overhead_suspected": "Forward wall time is high while device time is low: host overhead.",
    "forward_event_scope_limited": "Too few device events finished to say anything about the device.",
}

STRONG_LABELS = ("direct_exposure", "sync_wait_dependent", "likely_sync_wait")
"""Suppressed by telemetry_limited, role_aware_needed and gradient_accumulation_ambiguous."""

SUPPRESSING_LABELS = ("telemetry_limited", "role_aware_needed", "gradient_accumulation_ambiguous")

REASONS: Mapping[str, str] = {
    "denominator_floor": "The window holds too little exposed time for shares to mean anything.",
    "gather_failed": "The window's gather did not complete.",
    "missing_ranks": "Ranks that should have reported are absent.",
    "closure_residual": "Too much of the step lies outside the named stages.",
    "overlap_error": "Stages overlap: their sum exceeds the measured step.",
    "schema_mismatch": "Ranks reported different stage lists.",
    "step_misaligned": "Ranks reported different steps; only the common ones are used.",
    "nonmonotonic_clock": "A rank's clock ran backwards.",
    "dropped_steps": "The recorder dropped steps.",
    "nested_stages": "A stage was opened inside another one; its time counts for the outer one.",
    "nested_steps": "A step was opened inside another one; the inner one is recorded.",
    "stage_on_another_thread": "A stage was opened on another thread than its step's; its time is left out.",
    "stage_outside_step": "A stage was opened outside a step; its time is not recorded.",
    "hook_failed": "A hook of the recorder in a training framework failed; what it times is left out.",
    "profiled_steps": "A capture's profiler slowed some of these steps down, on the ranks that it ran on.",
    "unknown_stage": "A stage that the recorder was not told of was opened; its time is in the residual.",
    "reconfigure_refused": "The recorder was told to record what it cannot, and went on as before.",
    "prefetch_unaligned": "Data waits may belong to another step than the one they were recorded in.",
    "optimizers_alternate": "Different optimizers step in turn; each optimizer step is recorded as a step.",
    "loop_unclear": "What was seen of the training loop leaves open which stage some of its time belongs to.",
    "roles_differ": "The group holds more than one role.",
    "roles_missing": "Model parallelism is declared but ranks carry no role.",
    "accumulation_collapsed": "Several micro-steps share one broad stage.",
    "accumulation_mixed": "The accumulation factor or the sync pattern changed inside the window.",
    "single_rank": "One rank alone gives no evidence across ranks.",
    "carry_over": "Step-aligned shares charge a stage with time another stage of the step before caused.",
    "steps_not_consecutive": "Step numbers have gaps, so the window-aligned frontier is not defined.",
    "reduced_rows": "The frontier is that of all ranks, but only a few ranks' rows were kept: gains, excess, "
    "lags and the wait fit cannot be known.",
    "share_tie": "The two largest shares are tied.",
    "leader_switch": "The leading rank changes too often to name one.",
    "evidence_disagrees": "Raw durations, spread or gain point elsewhere than the frontier.",
    "low_static_gain": "Clipping the stage alone would gain little, and no wait model supports more.",
    # Why the aim names no rank, or a line of its evidence is absent.
    "rotating": "The leading rank changes from step to step.",
    "all_ranks": "All ranks spend the time alike; no rank stands out.",
    "no_eligible_steps": "In no step does one rank lead the stage with enough distance.",
    "no_clear_leader": "No rank leads often enough to be named.",
    "no_reference": "The run has no healthy window to compare with.",
    "reference_differs": "The reference has other stages, so it cannot be compared.",
    "step_time_not_grown": "The mean step is less than 5 % above the reference.",
    "quiet": "Exposed imbalance is below 5 %.",
    "below_gamma_g": "No stage reaches the static gain gate.",
    "no_wait_measured": "The window shows no stage that ranks wait in.",
    "not_sampled": "No device events were sampled.",
    "too_few_events": "Too few device events finished.",
    "no_device_share": "Sampled device time is a small share of the step.",
}  # fmt: skip

CULPRITS: Mapping[str, str] = {
    "chronic": "one rank leads in at least 80 % of the eligible steps",
    "rotating": "the leading rank keeps changing",
    "periodic": "the delay returns at a fixed spacing of steps",
    "one-off": "the delay appears in one or two steps only",
    "mixed": "one rank leads often, but not in 80 % of the eligible steps",
    "none": "no step singles out a rank at this stage",
}
