// Speaks for pi: one JSON request a line on stdin, one JSON answer a line on stdout.
// usage: node driver.mjs PACKAGE_FOLDER
import { join } from "node:path";
import { createInterface } from "node:readline";
import { pathToFileURL } from "node:url";

const core = (name) => import(pathToFileURL(join(process.argv[2], "dist", "core", name)).href);
const { SessionManager } = await core("session-manager.js");
const { prepareCompaction } = await core("compaction/compaction.js");
const { convertToLlm } = await core("messages.js");
const { FooterComponent } = await core("../modes/interactive/components/footer.js");
const { initTheme } = await core("../modes/interactive/theme/theme.js");
initTheme("dark", false);

const isSpeech = (e) => ["message", "custom_message", "branch_summary", "compaction"].includes(e.type);

// The entry a context message was made from: the same object, or one made of the entry's time.
function entryOf(message, branch) {
	const found = branch.find((e) => e.message === message);
	if (found) return found.id;
	const kinds = { compactionSummary: "compaction", branchSummary: "branch_summary", custom: "custom_message" };
	const text = (x) => JSON.stringify(x.summary ?? x.content);
	const made = branch.findLast(
		(e) => e.type === kinds[message.role] && text(e) === text(message) && new Date(e.timestamp).getTime() === message.timestamp,
	);
	return made ? made.id : null;
}

function plan(branch, keepRecentTokens) {
	const p = prepareCompaction(branch, { enabled: true, reserveTokens: 16384, keepRecentTokens });
	if (!p) return null;
	const ids = (messages) => messages.map((m) => entryOf(m, branch));
	return {
		firstKeptEntryId: p.firstKeptEntryId,
		isSplitTurn: p.isSplitTurn,
		tokensBefore: p.tokensBefore,
		previousSummary: p.previousSummary ?? null,
		messagesToSummarize: ids(p.messagesToSummarize),
		turnPrefixMessages: ids(p.turnPrefixMessages),
		summarized: p.messagesToSummarize,
	};
}

// The figures under pi's prompt; what it adds up may be missing in a file of others.
function footer(sessionManager, context) {
	const state = { messages: context.messages, model: undefined, thinkingLevel: context.thinkingLevel };
	const session = { state, sessionManager, getContextUsage: () => undefined, modelRegistry: { isUsingOAuth: () => false } };
	const data = { getGitBranch: () => null, getExtensionStatuses: () => new Map(), getAvailableProviderCount: () => 1 };
	return new FooterComponent(session, data).render(200);
}

const operations = {
	// What pi sees in a file; `leaf` looks from another entry than its own leaf.
	look({ file, keep = [], leaf }) {
		const s = SessionManager.open(file);
		if (leaf) s.branch(leaf);
		const branch = s.getBranch();
		const context = s.buildSessionContext();
		return {
			session: s.getSessionId(),
			cwd: s.getCwd(),
			name: s.getSessionName() ?? null,
			leaf: s.getLeafId(),
			branch: branch.map((e) => e.id),
			speech: branch.filter(isSpeech).map((e) => e.id),
			labels: Object.fromEntries(s.getEntries().map((e) => [e.id, s.getLabel(e.id)]).filter((pair) => pair[1])),
			context,
			ids: context.messages.map((m) => entryOf(m, branch)),
			plans: keep.map((tokens) => plan(branch, tokens)),
			llm: convertToLlm(context.messages),
			footer: footer(s, context),
		};
	},
	fork({ file, folder, cwd }) {
		return SessionManager.forkFrom(file, cwd, folder).getSessionFile();
	},
	// Calls methods of one SessionManager in turn; {"$": n} in an argument is what call n returned.
	write({ file, folder, cwd, calls }) {
		const s = file ? SessionManager.open(file) : SessionManager.create(cwd, folder);
		const results = [];
		const given = (x) => {
			if (Array.isArray(x)) return x.map(given);
			if (x === null || typeof x !== "object") return x;
			return "$" in x ? results[x.$] : Object.fromEntries(Object.entries(x).map(([k, v]) => [k, given(v)]));
		};
		for (const [method, ...args] of calls) results.push(s[method](...given(args)) ?? null);
		return { file: s.getSessionFile(), results, leaf: s.getLeafId() };
	},
};

for await (const line of createInterface({ input: process.stdin })) {
	const { op, ...args } = JSON.parse(line);
	let answer;
	try {
		answer = { ok: await operations[op](args) };
	} catch (error) {
		answer = { error: String(error.stack) };
	}
	process.stdout.write(`${JSON.stringify(answer)}\n`);
}
