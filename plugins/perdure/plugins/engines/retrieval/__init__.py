"""The engine `retrieval`: the recent tail, and what of the earlier session bears on the question."""
