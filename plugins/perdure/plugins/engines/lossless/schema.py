"""The tables. A session's rows have numbers of its own range, so that its searches read no other's index.

Foreign keys restrict: what a summary stands for can't be deleted beneath it. The full text is in trigrams,
so that every script is found; its tables hold no text, only the index.
"""

from __future__ import annotations

RANGE = 32  # bits of a number that count within one session

MIGRATIONS = (
    """
create table sessions (
    no integer primary key, id text not null unique, key text not null default '',
    cursor text not null default '', journal integer not null default 0, version integer not null default 0
) strict;
create index session_keys on sessions (key);

create table payloads (
    session integer not null references sessions on delete restrict, digest text not null,
    chars integer not null, body blob not null,
    primary key (session, digest)
) strict, without rowid;

create table messages (
    no integer primary key, session integer not null references sessions on delete restrict,
    entry text not null, place integer, role text not null, trust text not null, at integer not null,
    tokens integer not null, head blob not null, stub integer not null default 0,
    unique (session, entry)
) strict;
create unique index places on messages (session, place) where place is not null;

create table parts (
    message integer not null references messages on delete restrict, ordinal integer not null,
    kind text not null, text text not null, data blob not null, session integer not null, payload text,
    primary key (message, ordinal),
    foreign key (session, payload) references payloads on delete restrict
) strict, without rowid;

create table summaries (
    no integer primary key, session integer not null references sessions on delete restrict,
    id text not null, depth integer not null, text text not null, facts blob not null,
    unique (session, id)
) strict;

create table sources (
    summary integer not null references summaries on delete restrict, ordinal integer not null,
    message integer references messages on delete restrict,
    child integer references summaries on delete restrict,
    primary key (summary, ordinal), check ((message is null) <> (child is null))
) strict, without rowid;
create index sources_messages on sources (message) where message is not null;
create index sources_children on sources (child) where child is not null;

create table context_items (
    session integer not null references sessions on delete restrict, ordinal integer not null,
    message integer unique references messages on delete restrict,
    summary integer unique references summaries on delete restrict,
    primary key (session, ordinal), check ((message is null) <> (summary is null))
) strict, without rowid;

create table grants (
    child text primary key, parent integer not null references sessions on delete restrict,
    expires integer not null, tokens integer not null, depth integer not null
) strict, without rowid;

create virtual table messages_fts using fts5(text, content='', contentless_delete=1, tokenize='trigram');
create virtual table summaries_fts using fts5(text, content='', contentless_delete=1, tokenize='trigram');
""",
)
