"""The figures of reports: values of tables and charts, and plots of them."""
