// Forking: where it begins, what is different, and, before it is made, what that would mean.

import { at, attempt, banner, brief, button, choiceOf, command, commandLine, count, entry, field, go, h, icon, mayAct, newKey, noted, noteField, openDialog, post, say, skeleton, to, trouble } from "../kit.js";

const SOON_MS = 250;
const MOST = 300; // keys that are listed
const FEW = 3; // keys that stand on a line
const STATE = "the state"; // among what is different

/** Lines of NAME=JSON as values, and what is wrong with them. */
function pairs(text) {
	const found = { values: {}, words: [], problem: null };
	for (const line of text.split("\n").filter((each) => each.trim())) {
		const [name, json] = [line.slice(0, line.indexOf("=")).trim(), line.slice(line.indexOf("=") + 1).trim()];
		try {
			if (!name || !line.includes("=")) throw new SyntaxError();
			found.values[name] = JSON.parse(json);
			found.words.push(`${name}=${json}`);
		} catch {
			found.problem = `It takes NAME=JSON on each line; this is none: ${brief(line, 80)}`;
		}
	}
	return found;
}

/** The ways to begin: at a call, or in a run with so many turns. */
function waysOf(call, turns) {
	if (!call) return [["last", "Behind its last record", "All that it did is kept; it goes on from there"], ["record", "Behind a record", "What came later is done anew"], turns ? ["turn", "With a turn", "With the state that the turn began with, or another"] : null].filter(Boolean);
	const key = brief(call.key, 60);
	const anew = ["anew", `Before ${key}`, "It is done anew, and what came after it"];
	if (!call.ended_at) return [anew];
	return [anew, ["behind", `Behind ${key}`, "It keeps its result; what came after is done anew"], ["other", "With another result", `${key} answers what you say instead`]];
}

/** Ask for a fork of a run. `call` is one to begin at, `turn` a turn, `turns` how many there are. */
export function forkDialog(shell, run, { call = null, turn = 0, turns = 0 } = {}) {
	if (!mayAct(shell)) return;
	const ways = waysOf(call, turns);
	const state = { way: turn ? "turn" : ways[0][0], at: String(run.records), turn: String(turn || turns), sets: "", results: "", id: "", note: "", plan: null, problem: null, isBusy: false, isLooking: true, key: newKey() };
	const path = `/runs${at(run.id)}/fork`;

	const wanted = () => {
		const seqs = call?.records.map((each) => each.seq) ?? [];
		const place = { anew: Math.min(...seqs) - 1, behind: Math.max(...seqs), other: Math.max(...seqs), record: Number(state.at) }[state.way];
		const isTurn = state.way === "turn";
		const results = pairs(state.way === "anew" ? "" : state.results);
		const sets = pairs(isTurn ? state.sets : "");
		const number = isTurn ? Number(state.turn) : place;
		const isNumber = state.way === "last" || (Number.isInteger(number) && number > 0);
		return {
			sets, results,
			problem: isNumber ? (results.problem ?? sets.problem) : "It takes a whole number.",
			body: { ...(isTurn ? { turn: number } : state.way === "last" ? {} : { at: number }), results: results.values, set: sets.values, ...(state.id ? { id: state.id } : {}) },
		};
	};

	let timer = 0;
	let asked = 0;
	const look = async () => {
		const mine = (asked += 1);
		const { body, problem } = wanted();
		if (problem) return;
		try {
			const plan = await post(`${path}/plan`, body);
			if (mine === asked) Object.assign(state, { plan, problem: null, isLooking: false });
		} catch (problem) {
			if (mine === asked) Object.assign(state, { plan: null, problem, isLooking: false });
		}
		dialog.update();
	};
	const changed = (name, value) => {
		state[name] = value;
		if (name === "way" && value === "other" && !state.results) state.results = `${call.key}=${call.result?.json && !call.result.truncated ? call.result.json.replace(/\s*\n\s*/g, " ") : "null"}`;
		state.isLooking = true;
		clearTimeout(timer);
		timer = setTimeout(look, SOON_MS);
		dialog.update();
	};
	const lines = (name, word, about, problem) =>
		h("label.field", { key: name }, h("span", word, h("em", " one a line")), entry(state, name, changed, { rows: "2", class: "mono", spellcheck: "false", "aria-invalid": !!problem }), h("small", { class: problem ? "error" : null }, problem ?? about));

	const dialog = openDialog(`Fork ${brief(run.id, 60)}`, "fork", (update, close) => {
		const { body, sets, results, problem } = wanted();
		const send = async () => {
			const made = await post(path, { ...body, note: state.note }, state.key);
			close();
			say(`Forked ${run.id} as ${made.id}.`);
			go(to("runs", made.id));
		};
		const make = () => !problem && state.plan && attempt(state, update, send);
		const place = { record: ["at", "Record"], turn: ["turn", "Turn"] }[state.way];
		return [
			h("p", "A new run that begins with what this one had done by a point. This one stays as it is."),
			h("fieldset.choices", h("legend", "Where it begins"), ways.map(([value, word, about]) => choiceOf("way", { value, word, about }, state.way, (way) => changed("way", way)))),
			place && h("label.field", { key: place[0] }, h("span", place[1]), entry(state, place[0], changed, { inputmode: "numeric", class: "narrow", "aria-invalid": problem === "It takes a whole number." }), h("small", state.way === "turn" ? `1 to ${turns}` : `1 to ${run.records}, as the journal numbers them`)),
			state.way === "turn" ? lines("sets", "Another state", "PATH=JSON: history.0.text=\"hello\"", sets.problem) : null,
			state.way === "anew" ? null : lines("results", "Other results", "KEY=JSON, of calls that are kept: search#1=[]", results.problem),
			preflight(state, problem),
			field("Id", entry(state, "id", changed, { maxlength: "200", placeholder: "made up, if none is given" })),
			noteField(state, update, make, { isFirst: false }),
			commandLine(command("fork", run.id, body.at ? ["--at", body.at] : null, body.turn ? ["--turn", body.turn] : null, results.words.flatMap((each) => ["--result", each]), sets.words.flatMap((each) => ["--set", each]), state.id ? ["--id", state.id] : null, noted(state.note))),
			state.problem && trouble(state.problem),
			h("footer", button("Leave it", close), button("Fork the run", make, { kind: "primary", isOff: state.isBusy || state.isLooking || Boolean(problem) || !state.plan })),
		];
	}, { kind: "wide" });
	look();
}

/** What the fork would be: what answers from the journal, what happens again, what is not copied. */
function preflight(state, problem) {
	const { plan } = state;
	if (!plan) return state.problem || problem ? null : h("section.preflight", skeleton(3));
	const keys = (calls) => calls.map((call) => call.key ?? call);
	const open = keys(plan.not_copied);
	const rest = keys(plan.again).filter((key) => !plan.effects_again.includes(key) && !open.includes(key));
	return h("section.preflight", { label: "What it would be", "aria-busy": state.isLooking },
		h("p", brief(plan.sentences[0], 400)),
		plan.effects_again.length ? banner("warn", "effect", `${outward(plan)} would happen again`, [`if the code comes to ${plan.effects_again.length === 1 ? "it" : "them"}, with other keys: `, listed(plan.effects_again)]) : null,
		h("ul.lines",
			part("done", keys(plan.replays), "answered from the journal"),
			part("fork", plan.changed.filter((key) => key !== STATE), "with another result"),
			plan.changed.includes(STATE) ? h("li", { key: "state" }, icon("fork"), "It begins with another state.") : null,
			part("back", rest, "that came later, done again"),
			part("queued", open, "open there, begun anew"),
			part("receive", plan.unread.map((each) => each.name || each.kind), "to the original, not copied", "message"),
			part("child", plan.children, "started by it, left to the original", "run"),
			plan.effects_again.length ? null : h("li", { key: "none" }, icon("shield"), "No effect would happen again."),
		),
	);
}

/** Effects and child runs that would happen again. */
function outward(plan) {
	const kinds = plan.again.filter((call) => plan.effects_again.includes(call.key)).map((call) => call.kind);
	const children = kinds.filter((kind) => kind === "child").length;
	return [kinds.length > children ? count(kinds.length - children, "effect") : "", children ? count(children, "child run") : ""].filter(Boolean).join(" and ");
}

function part(glyph, keys, text, noun = "call") {
	if (!keys.length) return null;
	const told = [icon(glyph), h("span", h("strong", count(keys.length, noun)), ` ${text}`)];
	return h("li", { key: glyph }, keys.length > FEW ? h("details.grow", h("summary", told), h("p.quiet", listed(keys))) : [told, h("span.quiet.cut.end", listed(keys))]);
}

function listed(keys) {
	return [h("span.mono", keys.slice(0, MOST).map((key) => brief(key, 100)).join(", ")), keys.length > MOST ? ` and ${count(keys.length - MOST, "more", "more")}` : null];
}
