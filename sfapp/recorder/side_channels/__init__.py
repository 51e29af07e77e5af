"""Sample what a step does besides its stages: device events, memory and the user's own values."""
