// Parts that pages are made of.

import { newKey } from "./api.js";
import { brief, fill, h, icon } from "./dom.js";
import { to } from "./router.js";

// status: shape, word and colour, never colour alone

const WORDS = {
	queued: "queued", running: "running", sleeping: "sleeping", waiting: "waiting", asks: "asks you", paused: "paused",
	in_doubt: "in doubt", blocked: "blocked", quarantined: "quarantined", cut_off: "cut off", done: "done",
	failed: "failed", cancelled: "cancelled",
};
export const FINAL = ["done", "failed", "cancelled"];
const LOUD = new Set(["asks", "in_doubt", "blocked", "quarantined", "cut_off"]);

/** How a run stands, as people see it. */
export function standing(run) {
	if (run.is_cut_off) return "cut_off";
	if (run.status === "waiting" && (run.waits ?? []).some((wait) => wait.kind === "question")) return "asks";
	return run.status;
}

export function chip(kind, word = WORDS[kind] ?? kind) {
	const known = kind in WORDS ? kind : "other";
	const shape = known === "asks" ? "waiting" : known;
	return h("span", { class: `status status-${known}${LOUD.has(known) ? " loud" : ""}` }, icon(shape), h("span", word));
}

export function statusOf(run) {
	return chip(standing(run));
}

// buttons and links

export function button(label, act, { kind = "", glyph = "", title = null, isOff = false, keys = null } = {}) {
	return h("button", { class: `button ${kind}`, title, disabled: isOff, "aria-keyshortcuts": keys, click: act },
		glyph && icon(glyph),
		label && h("span", label),
	);
}

export function iconButton(glyph, label, act, { kind = "" } = {}) {
	return h("button", { class: `icon-button ${kind}`, label: label, title: label, click: act }, icon(glyph));
}

export function quiet(...children) {
	return h("span.quiet", children);
}

export function runLink(id, most = 80, kind = "") {
	return h(`a.mono${kind}`, { href: to("runs", id) }, brief(id, most));
}

export function field(name, ...children) {
	return h("label.field", { key: name }, h("span", name), children);
}

export function segments(label, options, chosen, choose) {
	return h("div.segments", { role: "group", label: label },
		options.map(([value, word, number]) =>
			h("button", { key: value, "aria-pressed": value === chosen, click: () => choose(value) },
				word,
				number !== undefined && number !== null ? [" ", h("b", String(number))] : null,
			),
		),
	);
}

/** A field whose text is the part of `state` with that name; `changed(name, value)` hears of it. */
export function entry(state, name, changed, { on, ...props } = {}) {
	const typed = (event) => changed(name, (state[name] = event.target.value));
	return h(props.rows ? "textarea" : "input", { type: props.rows ? null : "text", maxlength: props.rows ? null : "2000", value: state[name], ...props, on: { input: typed, ...on } });
}

// copying

let announce = () => {};

export function announceBy(tell) {
	announce = tell;
}

export function say(text, kind = "") {
	announce(brief(text, 400), kind);
}

export async function copy(text, what = "Copied.") {
	try {
		await navigator.clipboard.writeText(text);
		say(what);
	} catch {
		say("The browser does not let the page copy: select the text instead.", "bad");
	}
}

export function commandLine(text) {
	const shown = brief(text, 2000);
	return h("div.command",
		h("span.prompt", { "aria-hidden": "true" }, "$"),
		h("code", { tabindex: "0", label: `command: ${brief(text, 300)}` }, shown),
		iconButton("copy", "Copy the command", () => copy(text, "Command copied.")),
	);
}

// frames

export function head(title, about = null, ...actions) {
	return h("header.head", h("h1", title), about && h("p.quiet", about), h("div.actions", actions));
}

export function card(title, about, ...children) {
	return h("section.card", title && h("header", h("h2", title), about && quiet(about)), children);
}

export function banner(kind, glyph, strong, text, ...more) {
	return h("div", { class: `banner ${kind}`, role: kind === "bad" ? "alert" : null }, icon(glyph), h("div.grow", h("strong", strong), " ", text), more);
}

export function empty(glyph, title, text, ...more) {
	return h("div.empty", icon(glyph), h("h2", title), text && h("p", text), more);
}

export function emptyCard(...told) {
	return h("div.card", empty(...told));
}

/** Lines that come after a moment in which nothing has come. */
export function skeleton(rows = 6) {
	return h("div.skeleton", { role: "progressbar", "aria-busy": "true", label: "Loading" }, Array.from({ length: rows }, () => h("div", h("i"), h("i"), h("i"))));
}

export function trouble(problem, again) {
	const titles = { away: "The server cannot be reached", role: "You may look, not act", store_away: "The store cannot be reached" };
	const title = titles[problem.kind] ?? problem.title;
	const text = problem.kind === "away" || problem.message === title ? "" : problem.message;
	return banner(problem.status >= 400 && problem.status < 500 ? "warn" : "bad", problem.kind === "role" ? "shield" : "failed", `${title}.`, brief(text, 600), again && button("Try again", again, { kind: "small" }));
}

export function shown(reading, draw, { rows = 6 } = {}) {
	if (reading.data) return [reading.problem && reading.problem.kind !== "away" ? trouble(reading.problem, () => reading.again()) : null, draw(reading.data)];
	if (reading.problem) return [trouble(reading.problem, () => reading.again())];
	return [skeleton(rows)];
}

export function facts(pairs, kind = "") {
	return h("dl", { class: `facts ${kind}` }, pairs.filter(Boolean).map(([name, value]) => h("div", { key: name }, h("dt", name), h("dd", value))));
}

export function meter(done, total, label) {
	const share = total > 0 ? Math.max(0, Math.min(1, done / total)) : 0;
	return h("span.meter", { role: "img", label: label ?? `${done} of ${total}` }, h("i", { style: { width: `${(share * 100).toFixed(1)}%` } }));
}

/** A table whose cells know their heading, so that a phone can show them as lines. */
export function table(label, given, rows, { kind = "" } = {}) {
	const columns = given.map((column) => (typeof column === "string" ? { name: column } : column));
	return h("div", { class: `card table ${kind}` },
		h("table", { label: label },
			h("thead", h("tr", columns.map((column) => h("th", { scope: "col", class: column.kind ?? null }, column.name || h("span.unseen", column.label ?? "acts"))))),
			h("tbody",
				rows.map((row) =>
					h("tr", { key: row.key, class: row.kind ?? null, "data-row": row.isRow === false ? null : "", tabindex: row.isRow === false ? null : "-1" }, row.cells.map((cell, at) => h("td", { class: columns[at].kind ?? null, "data-name": columns[at].name || null }, cell))),
				),
			),
		),
	);
}

export function tabs(label, items, chosen, choose) {
	const move = (event) => {
		const step = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
		if (!step) return;
		const at = (items.findIndex(([name]) => name === chosen) + step + items.length) % items.length;
		choose(items[at][0]);
		event.preventDefault();
		requestAnimationFrame(() => document.getElementById(`tab-${items[at][0]}`)?.focus());
	};
	return h("div.tabs", { role: "tablist", label: label, on: { keydown: move } },
		items.map(([name, word, number]) =>
			h("button", { key: name, id: `tab-${name}`, type: "button", role: "tab", "aria-selected": name === chosen, tabindex: name === chosen ? "0" : "-1", click: () => choose(name) },
				word,
				number === null || number === undefined ? null : [" ", h("b", String(number))],
			),
		),
	);
}

export function steps(items) {
	return h("ol.steps", items.filter(Boolean).map(({ glyph, text, at, kind }, n) => h("li", { key: `${n}`, class: kind ?? null }, icon(glyph), h("span.grow", text), h("span.quiet.num", at))));
}

// dialogs

let isAsking = false;

/** Is a dialog open? Keys then belong to it. */
export function hasDialog() {
	return isAsking;
}

/** A dialog. `draw(update, close)` makes what is in it; focus goes back to where it was. */
export function openDialog(title, glyph, draw, { kind = "" } = {}) {
	const body = h("div.dialog-body");
	const dialog = h("dialog", { class: `dialog ${kind}`, "aria-labelledby": "dialog-title" }, h("header", icon(glyph), h("h2", { id: "dialog-title" }, title)), body);
	const close = () => dialog.close();
	const update = () => fill(body, draw(update, close));
	dialog.addEventListener("close", () => {
		isAsking = false;
		dialog.remove();
	});
	dialog.addEventListener("click", (event) => event.target === dialog && close());
	document.body.append(dialog);
	update();
	isAsking = true;
	dialog.showModal();
	(body.querySelector("[autofocus]") ?? body.querySelector("input, textarea, select, button"))?.focus();
	return { close, update };
}

export function choiceOf(name, { value, word, about }, chosen, choose) {
	return h("label.choice", { key: value }, h("input", { type: "radio", name, value, checked: chosen === value, on: { change: () => choose(value) } }), h("span", word, h("small", about)));
}

export function noteField(state, update, act, { isNeeded = false, isFirst = true } = {}) {
	const press = (event) => event.key === "Enter" && (event.preventDefault(), act());
	return h("label.field", h("span", "Note", isNeeded ? h("em", " required") : null), entry(state, "note", update, { placeholder: "Why; kept in the journal with your name", autofocus: isFirst, on: { keydown: press } }));
}

/** Do something, once at a time; what is wrong with it is told where it was asked for. */
export async function attempt(state, update, act) {
	if (state.isBusy) return;
	Object.assign(state, { isBusy: true, problem: null });
	update();
	try {
		await act();
	} catch (problem) {
		Object.assign(state, { problem, key: newKey() }); // another try is another act
	}
	state.isBusy = false;
	update();
}

/** An act: what it does, why, its command, and what became of it. */
export function askAct({ title, glyph, text, choices = null, more = null, confirm, isDanger = false, needsNote = false, command, act, done }) {
	const state = { note: "", choice: choices?.[0]?.value ?? null, isBusy: false, problem: null };
	openDialog(title, glyph, (update, close) => {
		const line = command(state);
		const go = () =>
			attempt(state, update, async () => {
				const told = await act(state);
				close();
				const what = done ? done(told) : told?.what;
				if (what) say(`${title.replace(/\?$/, "")}: ${what}.`);
			});
		return [
			text && h("p", text),
			choices &&
				h("fieldset.choices",
					h("legend.unseen", "How"),
					choices.map((each) => choiceOf("choice", each, state.choice, (value) => ((state.choice = value), update()))),
				),
			more?.(state),
			noteField(state, update, go, { isNeeded: needsNote, isFirst: !more }),
			line && commandLine(line),
			state.problem && trouble(state.problem),
			h("footer", button("Leave it", close), button(confirm, go, { kind: isDanger ? "danger" : "primary", isOff: state.isBusy || (needsNote && !state.note.trim()) })),
		];
	});
}
