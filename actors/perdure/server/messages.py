"""Posting a message, and following what becomes of it."""

from __future__ import annotations

import base64
import binascii
from urllib.parse import quote

from starlette.responses import Response
from starlette.types import ASGIApp

from perdure.actors.reporting import reply_line
from perdure.edges.settings_hosting import TenantSettings
from perdure.host import Sent
from perdure.kernel.errors import DeadlineExceeded
from perdure.records import Block, Image, Text
from perdure.server import frames
from perdure.server.bodies import Accepted, Answered, Attachment, NewMessage
from perdure.server.calls import Call
from perdure.server.problems import Refused, json
from perdure.server.streams import EventStream

MOST_ATTACHED = 5 * 1024 * 1024  # bytes of one attachment, decoded
LONGEST_WAIT = 600.0  # seconds that a client may wait for a reply in one request
LONGEST_MID = 200
CLOSING = "the host is stopping: send it again to the one that follows"


async def post(call: Call) -> Response:
    """Take a message. Answers once it is in the session's file; the reply goes out, or is awaited."""
    key, wait = call.key(), call.seconds("wait", LONGEST_WAIT)
    mid = call.request.headers.get("idempotency-key")
    if mid is not None and not (0 < len(mid) <= LONGEST_MID and mid.isascii() and mid.isprintable()):
        raise Refused(400, "invalid", f"Idempotency-Key: use 1 to {LONGEST_MID} printable ASCII characters")
    asked = await call.body(NewMessage)
    blocks = tuple(map(_block, asked.attachments))
    if not asked.text and not blocks:
        raise Refused(422, "invalid", "the message is empty: give it text or an attachment")
    if asked.sender.startswith("perdure."):
        raise Refused(422, "invalid", "senders that begin with `perdure.` are the host's own")
    if call.serving.draining:
        raise Refused(503, "closed", CLOSING, 5.0)
    call.host.services.tracing.arrived(key, call.request.headers)
    sender = _sender(call.tenant, asked.sender)
    sent = await call.host.send(
        key, asked.text, sender=sender, mid=mid, attachments=blocks, deliver=None if wait else True
    )
    return await _answer(call, sent, wait)


def _sender(tenant: TenantSettings, sender: str) -> str:
    """No two tenants have a sender in common: a message id is only known to who sent it."""
    return f"http:{quote(tenant.name, safe='')}:{sender}"


async def _answer(call: Call, sent: Sent, wait: float) -> Response:
    told = sent.receipt
    if wait:
        try:
            reply = await call.while_connected(lambda: sent.reply(wait))
        except DeadlineExceeded:
            pass
        else:
            return json(Answered(**reply_line(reply), entry=told.entry, mid=told.mid, repeated=told.repeated))
    return json(Accepted(told.key, told.entry, told.mid, told.repeated), 202)


def _block(attached: Attachment) -> Block:
    if (attached.data is None) == (attached.text is None):
        raise Refused(422, "invalid", "an attachment has either `data` (base64) or `text`")
    if attached.text is not None:
        return _text(attached.name, attached.text)
    data = _decoded(attached)
    if attached.mime.startswith("image/"):
        return Image(base64.b64encode(data).decode(), attached.mime)
    try:
        return _text(attached.name, data.decode())
    except UnicodeDecodeError:
        what = f"{attached.name or 'an attachment'} ({attached.mime or 'no mime'})"
        raise Refused(415, "unsupported_type", f"{what}: neither an image nor UTF-8 text") from None


def _decoded(attached: Attachment) -> bytes:
    text = attached.data or ""
    if len(text) > MOST_ATTACHED * 4 // 3 + 4:
        raise Refused(413, "attachment_too_large", f"{attached.name}: over {MOST_ATTACHED:,} bytes")
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise Refused(422, "invalid", f"{attached.name or 'an attachment'}: `data` is no base64") from None


def _text(name: str, text: str) -> Text:
    if len(text.encode("utf-8", "replace")) > MOST_ATTACHED:
        raise Refused(413, "attachment_too_large", f"{name}: over {MOST_ATTACHED:,} bytes")
    return Text(f"[file {name}]\n{text}" if name else text)


# --- streams --------------------------------------------------------------------------------------


async def follow(call: Call) -> ASGIApp:
    """Events of one session."""
    return _stream(call, call.key())


async def follow_all(call: Call) -> ASGIApp:
    """Events of all sessions of who asks."""
    return _stream(call, None)


def _stream(call: Call, key: str | None) -> ASGIApp:
    text = call.request.headers.get("last-event-id") or call.text("after")
    last = frames.place(text) if text else None
    serving, tenant = call.serving, call.tenant
    hub = serving.hub
    if hub.closing:
        raise Refused(503, "closed", CLOSING, 5.0)
    if not hub.reserve(tenant.name):
        raise Refused(429, "busy", "too many open streams of this tenant: close some", 5.0)
    return EventStream(
        serving.host,
        hub,
        serving.settings,
        key,
        None if tenant.operator else tenant.name,
        call.owns,
        last,
        lambda: hub.release(tenant.name),
    )
