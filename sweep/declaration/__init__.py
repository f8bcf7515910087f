"""What a sweep file says: YAML to frozen values, each error with its line."""
