"""Reports as HTML, Markdown or text."""
