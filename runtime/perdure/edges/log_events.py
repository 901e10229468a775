"""Every event that a host logs: how bad it is, and what it means. A name, once used, keeps its meaning.

`note`: it happened; `warning`: something was lost or is worse than it should be; `error`: somebody should
look now. The last two are counted whatever the log's level, and `status` tells them.
"""

from __future__ import annotations

from typing import Literal, TypeAlias

Grade: TypeAlias = Literal["note", "warning", "error"]

EVENTS: dict[str, tuple[Grade, str]] = {
    # --- the host
    "config.reloaded": ("note", "the configuration was read again; fields: what applies, what waits"),
    "config.refused": ("error", "the configuration was read again and is wrong: nothing changed"),
    "loop.blocked": ("warning", "the event loop stood still; fields name the code and whose it was"),
    "loop.paused": ("note", "the whole process did not run for a while: suspended, stopped or starved"),
    "machine.short": ("warning", "the machine has less than the host wants; the field says of what"),
    "mcp.away": ("warning", "a tool server could not be reached: its tools are missing until a restart"),
    "index.failed": ("warning", "the index took or gave nothing: sessions go on without it"),
    "index.rebuilt": ("note", "the index was made anew from the session files"),
    "index.left_out": ("warning", "a file could not be read for the index"),
    # --- plugins
    "plugin.told": ("note", "a plugin says something; the field `what` names it"),
    # --- a session's life
    "session.left_awake": ("note", "a host that died had this session awake: it is looked at"),
    "session.resumed": ("note", "a turn that was cut off is taken up"),
    "session.not_resumed": ("warning", "a turn that was cut off could not be taken up"),
    "session.not_opened": ("error", "the session's file could not be opened: its mail is refused"),
    "session.not_left_whole": ("error", "the session's file could not be made durable or closed"),
    "session.restored": ("note", "entries in a segment came back, for another program went on behind them"),
    "session.not_restored": ("warning", "such entries could not be brought back"),
    "session.lost": ("error", "another owner has the session's file"),
    "session.crashed": ("error", "a handler of the session broke: it begins anew from its file"),
    "session.model_gone": ("warning", "the session's model can't be had: another answers"),
    "session.sync_failed": ("error", "a file could not be made durable"),
    "session.lock_failed": ("warning", "the lock beside a session file could not be kept fresh"),
    "session.lock_taken": ("warning", "another program took the lock beside a session file"),
    "session.switch": ("note", "the branch was switched by command"),
    "session.label": ("note", "an entry was labelled by command"),
    "session.rename": ("note", "the session was renamed by command"),
    "session.fork": ("note", "the session was forked by command"),
    "session.undo": ("note", "the latest compaction was taken back by command"),
    "session.discarded": ("warning", "a segment was discarded by command"),
    "session.truncation": ("note", "covered entries were moved out of the file"),
    "session.compaction": ("note", "the history was summarised, or an attempt stopped"),
    "session.pruning": ("note", "old tool results are no longer shown whole"),
    "session.knowledge": ("note", "workspace knowledge was left out of the prompt"),
    "session.deleted": ("note", "the session was deleted for good"),
    "session.outbox": ("note", "the user was told what became of an answer on its way out"),
    "session.retry": ("note", "a provider told the turn to wait: a timer takes it up again"),
    "session.quarantined": ("warning", "the session's file could not be opened: it rests alone for a while"),
    "parked.not_kept": ("warning", "a parked message could not be written down: a restart forgets it"),
    # --- storage
    "journal.failed": ("error", "the journal takes nothing: nothing is acknowledged until it does"),
    "journal.not_closed": ("error", "the journal could not be closed: the next start settles it"),
    "journal.not_trimmed": ("error", "the journal could not be shortened"),
    "journal.put_aside": ("error", "lines of the journal fit no file: they were put aside"),
    "journal.replayed": ("warning", "lines that a crash took came back from the journal"),
    "index.caught_up": ("note", "the index had missed changes of session files"),
    "retention.removed": ("note", "something went by the rules of retention"),
    "retention.not_removed": ("warning", "something could not be removed by the rules of retention"),
    "retention.unmet": ("warning", "a rule of retention can't be met: what it would take is in use"),
    "retention.failed": ("error", "the state folder could not be looked through for retention"),
    "memory.over": ("warning", "the process is larger than its budget: resting sessions are put to sleep"),
    # --- timers, heartbeats, answers on their way out
    "timer.fired": ("note", "a timer's message was delivered"),
    "timer.skipped": ("note", "a timer that was missed is not made up for"),
    "timer.not_rung": ("warning", "a session could not be told that its timer is due: it is told again"),
    "timer.not_set": ("error", "a timer could not be written"),
    "timer.clock_jumped": ("warning", "the wall clock was set, or the machine was suspended"),
    "heartbeat.spoke": ("note", "a heartbeat had something to say"),
    "heartbeat.silent": ("note", "a heartbeat had nothing to say"),
    "heartbeat.skipped": ("note", "a heartbeat was left out"),
    "heartbeat.failed": ("warning", "a heartbeat came to nothing"),
    "heartbeat.not_rung": ("warning", "a session could not be told of its heartbeat"),
    "heartbeat.not_written": ("error", "what a heartbeat said could not be written"),
    "outbox.moved": ("note", "an answer on its way out stands elsewhere now"),
    "outbox.command": ("note", "answers on their way out were retried or dropped by command"),
    "outbox.not_written": ("error", "where an answer on its way out stands could not be written"),
    # --- the server, the end
    "server.bug": ("error", "a request met a fault of ours"),
    "server.connection": ("warning", "the HTTP server complains of a connection"),
    "drain.settler_failed": ("error", "something that had to end before the host broke"),
    "host.cut_off": ("warning", "the host stopped before all had ended: it goes on at the next start"),
    "host.waits_for_lost": ("error", "the host can't exit for jobs that ignore their end"),
    # --- turns, tools, models
    "turn.crashed": ("error", "a turn broke inside the host"),
    "turn.not_written": ("error", "a turn ended because the disk took nothing"),
    "turn.end_not_written": ("error", "the end of a turn could not be written"),
    "turn.stray_result": ("error", "a tool's result without a call was refused"),
    "tool.failed": ("warning", "a tool raised, or returned what is no output"),
    "model.retry": ("warning", "a model call failed and is tried again"),
    "model.no_fallback": ("warning", "a reference in `fallback` names no model: it is left out"),
    "session.fallback": ("warning", "another model answers while the chosen one can't, or that is over"),
    "model.paused": ("warning", "a provider refuses or is broken: nobody calls it for a while"),
    "worker.failed": ("warning", "a worker's message came to nothing"),
    "worker.full": ("warning", "a worker's queue was full: nothing was accepted"),
    # --- context
    "context.refreshed": ("note", "the workspace was read again for the prompt"),
    "context.not_refreshed": ("error", "the workspace could not be read again: the prompt stays as it was"),
    "context.pruned": ("note", "a request shows old results shorter, by the rules of pruning"),
    "context.shortened": ("note", "a request shows results shorter, by the rules of the guard"),
    "cache.break": ("warning", "the provider's cache was lost for a prefix; fields name the rule"),
    "cache.kept": ("note", "a resting session's cached prefix was kept alive"),
    "cache.not_kept": ("note", "a cached prefix could not be kept alive"),
    "estimate.doubted": ("warning", "a provider's figure contradicts the estimate of a request"),
    "compaction.failed": ("warning", "a compaction did not come about"),
    "compaction.aborted": ("note", "a compaction was stopped"),
    "compaction.awaited": ("note", "a turn waits for a compaction"),
    "truncation.skipped": ("note", "nothing was moved out of the file"),
    "summary.failed": ("warning", "a summarising call failed"),
    "summary.broke": ("warning", "a summarising worker broke"),
    "flush.done": ("note", "memories were written before a compaction"),
    "flush.failed": ("warning", "memories could not be written before a compaction"),
    "flush.absent": ("note", "nobody writes memories before a compaction"),
    "engine.quarantined": ("error", "an engine failed repeatedly or hung: it isn't asked for a while"),
    "engine.restarted": ("warning", "an engine failed several sessions in a row and was made anew"),
    "engine.not_restarted": ("error", "such an engine could not be made anew: the old one goes on"),
    "engine.not_disposed": ("warning", "an engine did not close what it has"),
    "engine.told_anew": ("note", "an engine hears a session from its first message: branch or store changed"),
    "engine.hooks_cut": ("error", "an engine's hooks behind a turn could not all be run"),
    "engine.behind": ("warning", "an engine has not taken all that was committed: it comes again"),
    "engine.shadow": ("note", "what a second engine would have sent, against what was sent"),
    "engine.failed": ("error", "the context engine failed: the view is sent as it is"),
    "engine.fallback": ("error", "the chosen context engine is not there: legacy is in use"),
    "trigger.fallback": ("warning", "the chosen compaction trigger is not there: the default is in use"),
    "trigger.failed": ("error", "the compaction trigger failed: the default decided"),
    # --- the kernel's own, as `kernel.<what>`
    "kernel.actor.crashed": ("error", "a handler raised"),
    "kernel.actor.restart_failed": ("error", "an actor could not begin anew"),
    "kernel.actor.parked": ("error", "a message that crashes its actor was put aside"),
    "kernel.actor.retried": ("note", "a parked message is tried again by command"),
    "kernel.actor.dropped": ("warning", "a parked message was forgotten"),
    "kernel.channel.dropped": ("warning", "a listener is slow or broke: news for it was dropped"),
    "kernel.job.late": ("warning", "a job that was given up has ended after all"),
    "kernel.job.lost": ("error", "a job ignored its cancellation"),
    "kernel.job.on_end_failed": ("error", "who waited for a job broke when told"),
    "kernel.pool.crashed": ("warning", "a worker broke on a message"),
    "kernel.pool.dead_letter": ("error", "a worker broke twice on a message: it is given up"),
    "kernel.pool.opened": ("error", "a pool's breaker opened: nothing is begun for a while"),
    "kernel.pool.key_rests": ("warning", "a session's worker keeps breaking: it rests"),
    "kernel.pool.on_done_failed": ("error", "who waited for a worker broke when told"),
    "kernel.service.failed": ("error", "a service ended with a fault"),
    "kernel.service.restarts": ("warning", "a service broke and is started again"),
    "kernel.timer.failed": ("error", "a timer's call raised"),
    "kernel.kernel.outside_wait": ("error", "a task waits where virtual time can't see it"),
    "kernel.kernel.waits_for_lost": ("error", "the host waits for jobs that ignore their end"),
    "kernel.kernel.on_lost_failed": ("error", "who waited to hear of lost jobs broke when told"),
    "log.unlisted": ("warning", "an event without a line in this list; the field has its name"),
}  # fmt: skip


def grade(event: str) -> Grade:
    """How bad an event is; one that is not listed is a note."""
    return EVENTS[event][0] if event in EVENTS else "note"


def meaning(event: str) -> str:
    """In a line, for a person."""
    return EVENTS[event][1] if event in EVENTS else "unknown"
