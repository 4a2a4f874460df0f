"""Ways to look at what a routing does."""
