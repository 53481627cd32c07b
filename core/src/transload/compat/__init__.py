"""Names that are here for those who come from other tools, one module for each tool."""
