"""Programs that measure speed; each writes its section of docs/performance.md."""
