"""The tools an agent gets by default, confined to its workspace, and the bridge to MCP servers."""
