"""Traces in parts: counted side by side, here or on other machines, and joined as if they had never been cut."""
