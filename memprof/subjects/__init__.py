"""What is measured and how: suites, orders, and the words of both."""
