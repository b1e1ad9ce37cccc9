"""How values go from a process to another: as bytes, in pieces, over lanes, into the ports of the interpreter."""
