"""The pages, one file each: `build(workspace)` registers it."""
