"""Every error of the kernel. Cancellations are BaseExceptions, so that `except Exception` can't eat them."""

from __future__ import annotations


class KernelError(Exception):
    """Base of all but the cancellations."""


class DeadlineExceeded(KernelError, TimeoutError):
    """The wait took longer than its owner allowed: retry, give up, or allow more."""


class Stuck(KernelError):
    """Virtual time can't go on: everyone waits and nothing is due. The text names who waits for what."""


class ForeignTask(KernelError):
    """A task not started through the kernel waits on virtual time: start it by `kernel.start` or `gather`."""


class OutsideWait(KernelError):
    """A task waits outside the kernel and holds virtual time up: let it wait by the clock or I/O policy."""


class Closed(KernelError):
    """The kernel is stopping: nothing was accepted."""


class Full(KernelError):
    """A bounded queue holds all it may: nothing was accepted; try again when it has emptied."""


class ActorParked(KernelError):
    """The actor crashed too often: nothing was accepted until it is retried or dropped."""


class Escalated(KernelError):
    """Services broke more often than the root allows: the process must end; the text names the last one."""


class StrayCancellation(KernelError):
    """A library let its own cancellation escape; nobody had cancelled this job. A fault of that job."""


class JobCancelled(BaseException):
    """This job was cancelled while it waited on virtual time: clean up and let it pass."""


class ScopeExpired(BaseException):
    """A `fail_after` around this wait ran out on virtual time; its scope makes it DeadlineExceeded."""

    def __init__(self, scope: object) -> None:
        super().__init__("deadline passed")
        self.scope = scope
