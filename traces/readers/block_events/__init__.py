"""Events of Linux's block layer as text."""
