"""Any module that contains capsule layers as a network to look into, and what its routings do with a batch."""
