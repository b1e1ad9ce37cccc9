"""Files of costs: read strictly, with the line of every fault, and written."""
