"""How programs are written and drawn: text, grids, SVG."""
