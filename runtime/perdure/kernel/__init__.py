"""Generic actors: clock, mailboxes, dispatcher, jobs, pools, supervision. Has never heard of an agent."""
