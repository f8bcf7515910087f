"""Parts of CRUSH maps: rendered, appended to a live map, tried offline, injected and taken out again."""
