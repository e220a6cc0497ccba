// The inspector: one call, how it went, what it was given and what came of it.

import { amount, at, brief, button, chip, clock, command, commandLine, facts, get, h, icon, iconButton, length, link, money, runLink, skeleton, steps, to, trouble, valueView } from "../kit.js";
import { verdictText } from "../timeline/timeline.js";
import { forkDialog } from "./forking.js";

const STATUS = { done: "done", failed: "failed", running: "running", waiting: "waiting", "in doubt": "in_doubt", "cut off": "cut_off", cancelled: "cancelled" };

export function inspector(page, ownPath) {
	const state = { key: null, path: ownPath, data: null, problem: null, records: 0 };
	const read = async () => {
		const { key, path } = state;
		try {
			const data = await get(`${path}/calls${at(key)}`);
			if (state.key !== key || state.path !== path) return;
			Object.assign(state, { data, problem: null });
		} catch (problem) {
			if (state.key !== key) return;
			state.problem = problem;
		}
		page.update();
	};
	return {
		get key() {
			return state.key;
		},
		open(key, path = ownPath) {
			if (key === state.key && path === state.path) return;
			Object.assign(state, { key, path, problem: null });
			read();
		},
		close: () => Object.assign(state, { key: null, data: null }),
		/** Read an open call again when something was recorded. */
		sync(run) {
			if (state.key && run.records !== state.records && state.data && !state.data.ended_at) read();
			state.records = run.records;
		},
		draw: (run) => (state.key ? h("aside.inspector", { label: "The call that is selected" }, drawCall(page, run, state, ownPath)) : h("aside.inspector.none", h("p.nothing", "Choose a call to see how it went."))),
	};
}

function drawCall(page, run, state, ownPath) {
	const { data: call, problem } = state;
	if (problem) return trouble(problem);
	if (!call) return skeleton(6);
	const shut = () => page.keys.Escape();
	return [
		h("header", icon(call.kind === "step" && call.usage.tokens ? "tokens" : call.kind), h("h2.cut", brief(call.name.replace(/^hf:/, ""), 80)), h("span.grow"), chip(STATUS[call.status] ?? "queued", call.status), iconButton("close", "Close", shut)),
		facts([
			["key", h("span.mono", brief(call.key, 400))],
			["kind", call.kind],
			call.took_s ? ["took", length(call.took_s)] : null,
			call.usage.tokens || call.usage.cost ? ["used", [call.usage.tokens ? `${amount(call.usage.tokens)} tokens` : "", money(call.usage.cost)].filter(Boolean).join(", ")] : null,
			call.idempotency_key ? ["idempotency", h("span.mono", brief(call.idempotency_key, 100))] : null,
			call.child ? ["run", runLink(call.child, 80)] : null,
			["records", call.records.map((each) => [h("a", { key: String(each.seq), href: to("runs", run.id, { tab: "journal", seq: each.seq }) }, `#${each.seq}`), " "])],
		]),
		h("section.how", h("h3", "How it went"), steps(told(call, run))),
		valueView("Input", call.args, { where: link(`${state.path}/payload`, { seq: call.args?.seq, part: call.args?.part }) }),
		valueView("Result", call.result, { where: link(`${state.path}/payload`, { seq: call.result?.seq, part: call.result?.part }) }),
		h("section.does", state.path === ownPath && run.status !== "quarantined" && !page.shell.whyNot ? button("Fork from here…", () => forkDialog(page.shell, run, { call }), { glyph: "fork" }) : null, commandLine(command("show", run.id, "--json"))),
	];
}

function told(call, run) {
	const lost = run.receipts.filter((each) => each.lost).map((each) => ({ ...each, time: new Date(each.at).getTime() }));
	const found = [];
	let former = null;
	for (const record of call.records) {
		const time = new Date(record.at).getTime();
		const outage = former && record.epoch !== former.epoch ? lost.find((each) => each.time > new Date(former.at).getTime() && each.time <= time + 5) : null;
		if (outage) found.push({ glyph: "cut_off", kind: "bad", text: `Process ${brief(outage.lost, 9)} lost${outage.proof === "lock" ? ": its lock is free" : outage.proof ? `: ${brief(outage.proof, 40)}` : ""}`, at: clock(outage.at, { withMs: true }) });
		if (outage && call.kind === "effect" && former.kind === "intent") found.push({ glyph: "in_doubt", kind: "doubt", text: "In doubt: no outcome was recorded", at: clock(outage.at, { withMs: true }) });
		const line = lineOf(record, call);
		if (line) found.push({ ...line, at: clock(record.at, { withMs: true }) });
		former = record;
	}
	if (!call.ended_at) found.push({ glyph: STATUS[call.status] ?? "queued", text: { waiting: "Waits", running: "Runs", "in doubt": "Waits for you", "cut off": "Cut off: its process died" }[call.status] ?? call.status, at: "now" });
	return found;
}

function lineOf(record, call) {
	const payload = parsed(record.payload?.json);
	switch (record.kind) {
		case "started":
			return { glyph: call.kind === "ask" ? "ask" : "step", text: call.kind === "ask" ? "Asked" : "Began" };
		case "intent":
			return { glyph: "effect", text: "Intent on disk, then the body began" };
		case "child":
			return { glyph: "child", text: "Child run started" };
		case "attempt":
			return { glyph: "failed", kind: "bad", text: `Attempt ${record.attempt} failed: ${brief(errorOf(payload), 240)}` };
		case "settled":
			return { glyph: "shield", text: `${payload?.by === "verify" ? "verify said" : `${brief(payload?.by ?? "somebody", 40)} said`}: ${verdictText({ verdict: payload?.verdict })}${payload?.note ? ` (${brief(payload.note, 200)})` : ""}` };
		case "noted":
			return record.name === "held" ? { glyph: "in_doubt", kind: "doubt", text: `In doubt: ${brief(payload?.cause ?? "", 80)}` } : null;
		case "done":
			return { glyph: "done", kind: "good", text: call.settlements.length && call.settlements.at(-1).verdict === "landed" ? "Ended with the result that was found; not repeated" : "Ended" };
		case "failed":
			return { glyph: "failed", kind: "bad", text: `Failed: ${brief(errorOf(payload), 240)}` };
		case "cancelled":
			return { glyph: "cancelled", text: "Cancelled by the code" };
		case "unstored":
			return { glyph: "failed", kind: "bad", text: "Its result could not be stored" };
		default:
			return { glyph: "info", text: brief(record.kind, 40) };
	}
}

function parsed(text) {
	try {
		return text ? JSON.parse(text) : null;
	} catch {
		return null;
	}
}

function errorOf(payload) {
	const error = payload?.error ?? payload;
	return error && typeof error === "object" ? `${error.type ?? "error"}: ${error.message ?? ""}` : String(error ?? "");
}
