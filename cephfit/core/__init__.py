"""What every room shares: values, errors, units, protocols, journal, locks."""
