"""The engine `lossless`: a session's past as a DAG of summaries over messages that are never deleted."""
