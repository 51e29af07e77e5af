"""Sample quantities of a step other than its stages: device events, memory and the user's own values."""
