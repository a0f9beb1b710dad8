"""Where the log, which is the service's, and Spark meet: past, present and future events as one."""
