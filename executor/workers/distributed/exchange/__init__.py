"""What processes tell each other beside the messages of the graph: settings, edits, results, the state of the stages."""
