"""All I/O of perdure: files, SQLite, models, tools, MCP, configuration, logging."""
