"""Options, choices and shell completion that several commands share."""
