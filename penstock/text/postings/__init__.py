"""Job postings on web pages of any company: JSON-LD, then embedded state, then the page."""
