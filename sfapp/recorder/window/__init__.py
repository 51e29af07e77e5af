"""Opening, filling and closing windows on a rank."""
