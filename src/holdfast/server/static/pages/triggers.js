// Triggers: what starts runs when something happens, and what they did with what came.

import { at, brief, button, chip, commandLine, count, emptyCard, get, h, head, quiet, runLink, shown, turnButton, when } from "../kit.js";

const GLYPHS = { started: "done", known: "done", ignored: "cancelled", refused: "failed", failed: "failed" };

const TURNED = { resume: "It starts runs again.", pause: "What comes is kept or dropped as its source does it; nothing is started until it is resumed." };

export function triggers(page) {
	const reading = page.read("/triggers", null, ["run"]);
	page.every(10_000, () => reading.again());
	const logs = new Map();
	const open = async (name) => {
		logs.set(name, logs.has(name) && logs.get(name) ? null : await get(`/triggers${at(name)}/log`).catch(() => null));
		page.update();
	};
	const draw = (data) => {
		if (!data.items.length) return emptyCard("bolt", "No triggers", "app.on(event, agent) makes one: events, files and messages of a queue then start runs.", commandLine("holdfast triggers"));
		return [...data.items].sort((a, b) => a.paused - b.paused).map((each) => one(page, each, logs.get(each.name), open, reading));
	};
	return { title: () => "Triggers", draw: () => [head("Triggers", "What starts runs when something happens."), shown(reading, draw)] };
}

function one(page, each, log, open, reading) {
	const what = each.kind === "event" ? `event ${each.config.event}` : `${each.kind} ${JSON.stringify(each.config)}`;
	const notes = log ? [...log.recent].reverse() : [...each.recent].reverse();
	return h("section.card", { key: each.name },
		h("header.row.wrap",
			each.paused ? chip("paused") : chip("done", "on"),
			h("h2", brief(each.name, 80)),
			quiet(`${brief(what, 160)} → ${brief(each.agent, 60)}`),
			each.where ? h("code.mono.quiet.cut", `where ${brief(JSON.stringify(each.where), 160)}`) : null,
			h("span.grow"),
			quiet(`${count(each.received, "received", "received")}, ${each.matched} matched, ${each.started} started${each.refused ? `, ${each.refused} refused` : ""}`),
			turnButton(page, "triggers", each, TURNED, () => reading.again()),
		),
		notes.length ? h("ul.lines", notes.slice(0, 60).map((note, n) => h("li", { key: `${note.at} ${n}` }, chip(GLYPHS[note.what] ?? "queued", note.what), quiet(when(note.at)), h("span.mono.cut.grow", brief(note.detail, 300)), note.run && note.what === "started" ? runLink(note.run, 40, ".cut") : null))) : h("p.nothing", "Nothing has come yet."),
		h("div.more", button(log ? "Show less" : "Show the log", () => open(each.name), { kind: "small plain" })),
	);
}
