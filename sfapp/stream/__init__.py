"""From every rank to one screen while the job runs: sender, node relay, aggregator (docs/stream.md)."""
