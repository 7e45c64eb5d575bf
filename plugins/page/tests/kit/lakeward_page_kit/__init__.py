"""The kit of the page's tests: a page without a service, and what a page says."""
