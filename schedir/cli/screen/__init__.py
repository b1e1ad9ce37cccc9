"""What commands print: tables, bars, notes and progress that fit the terminal."""
