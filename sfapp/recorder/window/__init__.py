"""When windows open and close on a rank, and what is recorded in them."""
