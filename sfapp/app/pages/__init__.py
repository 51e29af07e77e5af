"""The pages, one module each: ``build(workspace)`` registers it. ``not_found`` answers other addresses."""
