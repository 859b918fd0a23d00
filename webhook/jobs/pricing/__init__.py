"""What one pod costs, priced as the API server prices it: requests, LimitRanges, overhead, resizes."""
