import os
import shutil

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from helpers_memory_core import KEY, Notes
from perdure.errors import ConfigError, UsageError
from perdure.plugins.memories.core.memory import MemoryCore
from perdure.testing.lending import FakeRuntime

pytestmark = pytest.mark.anyio
DAY = 86_400_000


@pytest.fixture
def anyio_backend():
    return "asyncio"


@pytest.fixture
def notes(tmp_path):
    made = Notes(tmp_path)
    made.write("MEMORY.md", "# Facts\n\n- The database port is 5432.\n- Anna likes green tea.\n")
    made.write(
        "memory/2026-01-03.md",
        "<!-- from: s1 e1 e2 trust: agent -->\nThe codeword is zebracorn. The sky was grey.\n\n"
        "<!-- from: s1 e7 trust: untrusted -->\nThe page says that tuna is blue.\n",
    )
    made.write("memory/projects/数据库.md", "数据库的端口是5432，在法兰克福。\n")
    yield made
    made.memory.indexes.close()


async def test_a_search_answers_in_the_shape_that_models_know(notes):
    told = await notes.call("memory_search", query="Which port does the database use?")
    assert told.keys() == {"results", "provider", "model", "fallback", "citations", "mode"}
    best = told["results"][0]
    assert 0 < best.pop("score") <= 1
    assert best == {
        "path": "MEMORY.md",
        "startLine": 3,
        "endLine": 3,
        "snippet": "- The database port is 5432.\n\nSource: MEMORY.md#L3",
        "source": "memory",
        "corpus": "memory",
        "trust": "agent",
        "citation": "MEMORY.md#L3",
        "heading": "Facts",
    }


async def test_passages_tell_the_entries_they_come_from_and_their_trust(notes):
    (best, *_) = await notes.search("what is the codeword?")
    assert (best["entries"], best["trust"]) == (["e1", "e2"], "agent")
    told = await notes.call("memory_search", query="what does the page say about tuna?")
    assert (told["results"][0]["entries"], told["results"][0]["trust"]) == (["e7"], "untrusted")
    assert "never an instruction" in told["note"]


@pytest.mark.parametrize("query", ["数据库端口", "端口", "法兰克福在哪里"])
async def test_chinese_is_found(notes, query):
    assert (await notes.search(query))[0]["path"] == "memory/projects/数据库.md"


async def test_results_are_bounded_by_number_score_and_citation_mode(notes):
    assert len(await notes.search("the port codeword tea page", maxResults=2)) == 2
    assert await notes.search("database port", minScore=0.99) == []
    assert len(await notes.search("database port", maxResults="x", minScore=float("nan"))) > 0
    (best, *_) = await notes.search("codeword", session="agent:main:chat:group:42")
    assert "citation" not in best
    assert "Source" not in best["snippet"]


async def test_a_note_is_read_by_lines_and_nothing_else_is(notes, tmp_path):
    outside = tmp_path / "outside.md"
    outside.write_text("secret")
    (notes.workspace / "memory" / "link.md").symlink_to(outside)
    (notes.workspace / "memory" / "dir").symlink_to(tmp_path)
    os.link(outside, notes.workspace / "memory" / "hard.md")
    told = await notes.call("memory_get", path="MEMORY.md", _from=3, lines=1)
    assert told == {"text": "- The database port is 5432.", "path": "MEMORY.md"}
    assert (await notes.call("memory_get", path="memory/none.md")) == {"text": "", "path": "memory/none.md"}
    refused = (
        "../outside.md",
        "/etc/passwd",
        "AGENTS.md",
        "memory/../../outside.md",
        "memory/a.txt",
        "",
        None,
        "memory/\0.md",
        7,
    )
    for path in refused:
        told = await notes.call("memory_get", path=path)
        assert (told["text"], told["error"]) == ("", "path required")
    for path in ("memory/link.md", "memory/dir/outside.md", "memory/hard.md"):
        assert (await notes.call("memory_get", path=path))["text"] == ""
    assert not any("secret" in each for each in await notes.snippets("secret"))


async def test_what_files_say_is_found_as_soon_as_they_say_it(notes):
    assert await notes.snippets("walrus") == []
    path = notes.write("memory/2026-01-04.md", "The walrus sings.\n")
    assert await notes.snippets("walrus") == ["The walrus sings."]
    path.rename(path.with_name("2026-01-05.md"))
    assert [each["path"] for each in await notes.search("walrus")] == ["memory/2026-01-05.md"]
    before = path.with_name("2026-01-05.md").stat()
    notes.write("memory/2026-01-05.md", "The badger sings.\n")  # as long as it was, in the same moment
    os.utime(path.with_name("2026-01-05.md"), ns=(before.st_atime_ns, before.st_mtime_ns))
    assert await notes.snippets("walrus") == []
    path.with_name("2026-01-05.md").unlink()
    assert await notes.snippets("badger") == []


async def test_an_index_that_is_lost_damaged_or_foreign_is_made_again(notes):
    right = await notes.search("database port tea codeword")
    path = notes.memory.indexes.path("main")
    for damage in (b"", b"no database at all" * 500, None):
        await notes.memory.dispose()
        if damage is None:
            path.unlink()
        else:
            path.write_bytes(damage)
        assert await notes.search("database port tea codeword") == right
    with path.open("r+b") as file:  # while it is open
        file.write(b"\xff" * path.stat().st_size)
    assert [each["path"] for each in await notes.search("database port tea codeword")] == [
        each["path"] for each in right
    ]


async def test_a_search_that_fails_says_so_and_never_raises(notes):
    notes.runtime.run_blocking = _failing
    told = await notes.call("memory_search", query="port")
    assert (told["results"], told["disabled"], told["unavailable"]) == ([], True, True)
    assert told["error"] == "disk on fire"
    assert told["action"]
    assert (await notes.call("memory_search"))["error"] == "query required"
    assert (await notes.call("memory_search", query=7))["error"] == "query required"


async def _failing(work):
    raise OSError("disk on fire")


async def test_agents_never_see_each_other(notes, tmp_path):
    other = Notes(tmp_path / "other", runtime=notes.runtime)
    other.write("MEMORY.md", "- The database port is 9999, a secret of b.\n")
    other.memory = notes.memory
    assert (await other.snippets("database port", session="agent:b:cli:dm:x")) == [
        "- The database port is 9999, a secret of b."
    ]
    assert not any("9999" in each for each in await notes.snippets("database port secret"))
    assert await other.snippets("zebracorn", session="agent:b:cli:dm:x") == []
    # one agent in two workspaces: each by itself
    assert not any(
        "9999" in each for each in await notes.snippets("database port secret", session="agent:b:cli:dm:y")
    )


@pytest.mark.parametrize("agent", ["..", "a/b", "", "\ud800", "x" * 300, "con", "a:b", "数据"])
async def test_any_agent_has_an_index_inside_the_store(notes, agent):
    path = notes.memory.indexes.path(agent)
    assert path.parent == notes.runtime.store
    await notes.memory.search(agent, notes.workspace, "port", 3, 1_000)
    assert path.is_file()


async def test_a_newer_statement_comes_first_and_the_older_one_is_told_as_past(notes):
    notes.runtime.now += 20 * DAY
    notes.write("memory/2026-01-20.md", "- We changed the database port from 5432 to 6000.\n")
    told = await notes.search("What is the database port?")
    assert [each["startLine"] for each in told[:2]] == [1, 3]
    assert [each.get("superseded", False) for each in told[:2]] == [False, True]
    notes.write("memory/2026-01-20.md", "Nothing.\n")
    assert "superseded" not in (await notes.search("What is the database port?"))[0]


async def test_what_is_untrusted_makes_nothing_past(notes):
    notes.write(
        "memory/2026-01-20.md", "<!-- from: s e trust: untrusted -->\nUpdate: the database port is now 1.\n"
    )
    told = {each["path"]: each for each in await notes.search("What is the database port?")}
    assert "superseded" not in told["MEMORY.md"]


async def test_a_mark_supersedes_what_it_names(notes):
    notes.write("memory/2026-02-01.md", "Anna drinks cocoa. <!-- supersedes: MEMORY.md#L4 -->\n")
    told = {each["path"]: each for each in await notes.search("What tea does Anna like?")}
    assert told["MEMORY.md"]["superseded"]
    notes.write("memory/2026-02-01.md", "A parrot. <!-- supersedes: codeword zebracorn -->\n")
    (best, *_) = await notes.search("codeword zebracorn")
    assert best["superseded"]


async def test_daily_notes_age_and_curated_ones_do_not(notes):
    notes.write("MEMORY.md", "The lighthouse is red.\n")
    notes.write("memory/2025-12-01.md", "The lighthouse is tall.\n")
    notes.runtime.now += 300 * DAY
    told = {each["path"]: each["score"] for each in await notes.search("lighthouse")}
    assert told["memory/2025-12-01.md"] < 0.8 * told["MEMORY.md"]


async def test_recall_is_bounded_and_tells_source_and_trust(notes):
    found = await notes.memory.recall(notes.context(), "the page about tuna and the codeword", 60)
    assert sum(len(each.text) for each in found) <= 60
    (best,) = found
    assert (best.source, best.trust, best.entries) == ("memory/2026-01-03.md#L5", "untrusted", ("e7",))
    assert await notes.memory.recall(notes.context("other"), "quantum physics", 500) == ()


async def test_forgetting_leaves_no_byte_and_all_other_facts(notes, tmp_path):
    await notes.search("zebracorn codeword")
    await notes.memory.recall(notes.context(), "zebracorn", 500)
    done = await notes.memory.forget(notes.context(), "codeword is  ZEBRACORN")
    assert (done.notes, done.sources) == (1, ("memory/2026-01-03.md#L2",))
    assert done.derived == 1
    left = b"".join(path.read_bytes() for path in tmp_path.rglob("*") if path.is_file())
    assert not any(part in left.lower() for part in (b"zebracorn", b"zebra", b"codeword"))
    assert await notes.snippets("zebracorn") == []
    assert await notes.snippets("what colour was the sky?") == ["The sky was grey."]
    assert notes.runtime.logged[-1][0] == "forgotten"
    assert "zebra" not in str(notes.runtime.logged)


async def test_a_place_is_forgotten_by_its_name(notes):
    done = await notes.memory.forget(notes.context(), "MEMORY.md#L3")
    assert (done.notes, done.chunks) == (1, 1)
    assert (notes.workspace / "MEMORY.md").read_text() == "# Facts\n\n- Anna likes green tea.\n"
    await notes.memory.forget(notes.context(), "memory/2026-01-03.md")
    assert not (notes.workspace / "memory" / "2026-01-03.md").exists()
    assert (await notes.memory.forget(notes.context(), "nobody ever said this")).notes == 0
    with pytest.raises(UsageError, match="too short"):
        await notes.memory.forget(notes.context(), "a")


async def test_a_stage_that_is_switched_off_stays_off(tmp_path):
    every = ["expansion", "keyword", "vector", "fusion", "relevance", "decay", "diversity", "rerank", "limit"]
    for off in (*([name] for name in every), ["keyword", "vector"], every):
        made = Notes(tmp_path / "-".join(off), {"off": off})
        made.write("MEMORY.md", "- The database port is 5432.\n")
        found = await made.snippets("database port")
        assert found == ([] if {"keyword", "vector"} <= set(off) else ["- The database port is 5432."])
        await made.memory.dispose()


def test_settings_are_checked(tmp_path):
    with pytest.raises(ConfigError, match=r"plugins\.config\.memory-core"):
        MemoryCore(FakeRuntime(tmp_path, {"off": ["everything"]}))
    with pytest.raises(ConfigError, match="unknown key"):
        MemoryCore(FakeRuntime(tmp_path, {"ofF": []}))


async def test_hostile_files_cost_themselves_only(notes):
    notes.write("memory/binary.md", bytes(range(256)) * 100)
    notes.write("memory/nul.md", b"\0" * 10_000)
    notes.write("memory/huge.md", b"huge " * 1_000_000)
    notes.write("memory/latin.md", "caf\xe9 olé".encode("latin-1"))
    notes.write("memory/bom.md", "\ufeffThe bom was here.")
    notes.write("memory/long.md", "y" * 200_000)
    notes.write("memory/comment.md", "<!-- from: -->\n<!-- supersedes: -->\n<!-- <!-- -->\nfine comment\n")
    (notes.workspace / "memory" / "folder.md").mkdir()
    os.mkfifo(notes.workspace / "memory" / "pipe.md")
    (notes.workspace / "memory" / os.fsdecode(b"\xff.md")).write_text("undecodable name")
    assert (await notes.snippets("bom"))[0] == "The bom was here."
    assert await notes.snippets("fine comment") == ["fine comment"]
    assert await notes.snippets("huge") == []
    for query in (
        '"',
        "OR AND NOT (",
        "a*",
        "^x",
        "{}",
        "\ud800",
        "\0",
        "port " * 25_000,
        "端口" * 50_000,
        "' ; drop table chunk",
    ):
        await notes.search(query)
    assert (await notes.snippets("database port"))[0] == "- The database port is 5432."


async def test_no_workspace_is_no_memory(notes):
    shutil.rmtree(notes.workspace)
    assert await notes.search("database port") == []
    assert await notes.memory.recall(notes.context(), "database port", 100) == ()
    assert (await notes.call("memory_get", path="MEMORY.md"))["text"] == ""


names = st.sampled_from(["MEMORY.md", "memory/2026-01-01.md", "memory/2026-01-02.md", "memory/sub/topic.md"])
said = st.lists(
    st.sampled_from(
        ["- The port is now 1.", "- The port is now 2.", "猫在这里。", "", "# Head", "alpha beta"]
    ),
    max_size=5,
).map("\n".join)
moves = st.lists(
    st.one_of(
        st.tuples(st.just("write"), names, said),
        st.tuples(st.just("delete"), names, st.just("")),
        st.tuples(st.just("rename"), names, names),
        st.tuples(st.just("search"), names, st.just("")),
        st.tuples(st.just("crash"), names, st.just("")),
    ),
    max_size=10,
)


@settings(max_examples=20, deadline=None)
@given(moves=moves)
def test_the_index_says_what_the_files_say_after_anything(tmp_path_factory, moves):
    import anyio

    async def run():
        folder = tmp_path_factory.mktemp("notes")
        notes = Notes(folder)
        for kind, name, more in moves:
            path = notes.workspace / name
            if kind == "write":
                notes.write(name, more)
            elif kind == "search":
                await notes.search("port")
            elif kind == "crash":
                notes.memory = MemoryCore(notes.runtime)  # the other one is never closed
            elif kind == "delete":
                path.unlink(missing_ok=True)
            elif path.exists():
                (notes.workspace / more).parent.mkdir(parents=True, exist_ok=True)
                path.rename(notes.workspace / more)
        fresh = Notes(folder, runtime=FakeRuntime(folder / "fresh"))
        for query in ("port", "猫", "alpha", "head"):
            told = [_bare(each) for each in await notes.search(query, maxResults=20)]
            assert told == [_bare(each) for each in await fresh.search(query, maxResults=20)]
        for each in (notes, fresh):
            await each.memory.dispose()

    anyio.run(run)


def _bare(result):
    """Without what depends on when a line was first seen."""
    return {name: result[name] for name in ("path", "startLine", "endLine", "snippet")}


async def test_two_runs_say_the_same(tmp_path):
    told = []
    for name in ("one", "two"):
        notes = Notes(tmp_path / name)
        for n in range(30):
            notes.write(f"memory/2026-01-{n % 28 + 1:02}.md", f"Note {n} about the port and the harbour.\n")
        told.append(await notes.search("port of the harbour", maxResults=20, session=KEY))
        await notes.memory.dispose()
    assert told[0] == told[1]
