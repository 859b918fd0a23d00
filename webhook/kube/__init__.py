"""The API server as bytes, records and errors: requests, list-and-watch, leader election."""
