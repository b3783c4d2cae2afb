"""The order of a graph's operators with the least peak, and its proof."""
