"""The command line: every command reads its flags, calls the library and prints."""
