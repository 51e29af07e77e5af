"""Alerts: notice when problems begin, change and end, and send each of it once (docs/alerts.md)."""
