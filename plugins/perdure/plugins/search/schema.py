"""The tables of a `Store`."""

from __future__ import annotations

MIGRATIONS = (
    """
    create table about (name text primary key, value text not null) strict, without rowid;
    create table source (
        id integer primary key, scope text not null, name text not null, stamp text not null,
        unique (scope, name)
    ) strict;
    create table embedding (
        id integer primary key, hash text not null, embedder text not null, vector blob not null,
        unique (hash, embedder)
    ) strict;
    create table chunk (
        id integer primary key, source integer not null references source on delete cascade,
        scope text not null, embedding integer references embedding on delete set null,
        first integer not null, last integer not null, at integer not null,
        superseded integer not null default 0, hash text not null, trust text not null,
        entries text not null, context text not null, text text not null
    ) strict;
    create index chunk_source on chunk (source);
    create index chunk_hash on chunk (hash);
    create index chunk_embedding on chunk (embedding);
    create table statement (
        chunk integer not null references chunk on delete cascade, subject text not null, said text not null
    ) strict;
    create index statement_chunk on statement (chunk);
    create index statement_subject on statement (subject);
    create virtual table words using fts5 (
        terms, content = '', contentless_delete = 1, tokenize = "ascii"
    );
    create virtual table trigrams using fts5 (
        text, content = '', contentless_delete = 1, tokenize = "trigram"
    );
    create virtual table terms using fts5vocab (words, row);
    """,
)


def vectors(column: str) -> str:
    """The table of vectors. Each scope has blocks of its own: one of 1,024-bit signs takes 140 kB."""
    return (
        "create virtual table vectors using vec0 (id integer primary key, scope text partition key, "
        f"vector {column}, +embedding integer, chunk_size=1024)"
    )
