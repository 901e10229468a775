// pi's SessionManager: opening a session with its context, or appending to a copy of it.
// node --expose-gc pi.mjs MANAGER FILE open|append COPY
import { copyFileSync, rmSync } from "node:fs";
import { dirname } from "node:path";
import { pathToFileURL } from "node:url";

const [manager, file, what, copy] = process.argv.slice(2);
const { SessionManager } = await import(pathToFileURL(manager));
const wall = () => performance.now();
const cpu = () => {
	const used = process.cpuUsage();
	return (used.user + used.system) / 1000;
};
const report = (figures) => console.log("FIGURES " + JSON.stringify(figures));

if (what === "open") {
	globalThis.gc();
	const before = process.memoryUsage().rss;
	const began = wall(), spent = cpu();
	const session = SessionManager.open(file, dirname(file));
	const opened_wall = wall() - began, opened = cpu() - spent;
	const context = session.buildSessionContext();
	const took = wall() - began, used = cpu() - spent;
	globalThis.gc();
	const held = (process.memoryUsage().rss - before) / 1e6;
	report({ wall_ms: took, cpu_ms: used, open_wall_ms: opened_wall, open_ms: opened, held_mb: held, messages: context.messages.length });
} else {
	copyFileSync(file, copy);
	const session = SessionManager.open(copy, dirname(copy));
	const message = { role: "user", content: [{ type: "text", text: "x".repeat(1400) }], timestamp: 1 };
	session.appendMessage(message);
	const appends = 2000;
	const began = wall(), spent = cpu();
	for (let i = 0; i < appends; i++) session.appendMessage(message);
	report({ wall_us: ((wall() - began) / appends) * 1000, cpu_us: ((cpu() - spent) / appends) * 1000 });
	rmSync(copy);
}
