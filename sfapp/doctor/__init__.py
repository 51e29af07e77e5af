"""Say what this environment can record, why not the rest, and how to fix each (docs/doctor.md)."""
