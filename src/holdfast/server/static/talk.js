// What was said, as bubbles: messages of threads, what runs were given, what they asked and what came of them.

import { at, get } from "./api.js";
import { brief, clean, h, icon } from "./dom.js";
import { to } from "./router.js";
import { valueView } from "./values.js";
import { when } from "./words.js";

const PAGE = 100;
const LONGEST = 20_000;

/** The text that a stored value is, or has in it, and who says it; null: it is no talk. */
export function wordsOf(json) {
	let value;
	try {
		value = JSON.parse(json);
	} catch {
		return null;
	}
	if (typeof value === "boolean") value = value ? "yes" : "no";
	if (typeof value === "string" || typeof value === "number") return { role: "", text: String(value) };
	if (value === null || typeof value !== "object" || Array.isArray(value)) return null;
	const role = typeof value.role === "string" ? value.role : "";
	const text = [value.text, value.content].find((each) => typeof each === "string" || Array.isArray(each));
	if (typeof text === "string") return { role, text };
	const parts = (text ?? []).filter((part) => typeof part?.text === "string").map((part) => part.text);
	if (parts.length) return { role, text: parts.join("\n") };
	const only = Object.values(value);
	return only.length === 1 && typeof only[0] === "string" ? { role, text: only[0] } : null;
}

/** A bubble. `side` is in (people), out (agents) or note; `value` is {json, truncated}. */
export function bubble({ key, side, who, at: said, value, label, href, where, extra }) {
	const words = value?.json ? wordsOf(value.json) : null;
	const body = words ? h("p.prose", clean(words.text.slice(0, LONGEST))) : value ? valueView(label, value, { where, of: who }) : null;
	const name = brief(who, 80);
	const linked = href ? h("a", { href }, name) : name;
	return h(`li.bubble.${side}`, { key, row: true }, h("header", h("strong", words?.role ? brief(words.role, 30) : linked), h("span.quiet", words?.role ? linked : label), when(said)), body, extra);
}

/** A message of a thread; `runs` has the ids of known ones. What a run says for its user is the user's. */
export function messageBubble(message, runs = null) {
	const isRun = runs?.has(message.author) ?? wordsOf(message.json ?? "")?.role === "assistant";
	const side = isRun && wordsOf(message.json ?? "")?.role !== "user" ? "out" : "in";
	const href = runs?.has(message.author) ? to("runs", message.author) : null;
	const summary = message.covers ? h("p.quiet", icon("info"), ` says in short what was said up to message ${message.covers}`) : null;
	const none = message.is_sound ? "It is not shown to your role." : "It is damaged: what is stored is not what was said.";
	return bubble({
		key: `m${message.number}`, side: message.covers ? "note" : side, who: message.author, at: message.at, label: `message ${message.number}`, href,
		value: message.json === null ? null : message,
		extra: message.json === null ? h("p", { class: message.is_sound ? "quiet" : "error" }, none) : summary,
	});
}

/** The messages of a thread: the last ones, those before on demand, new ones as they come. */
export class Messages {
	constructor(thread, changed) {
		Object.assign(this, { thread, changed, items: [], last: 0, problem: null, isBusy: false });
	}

	get first() {
		return this.items[0]?.number ?? 1;
	}

	async sync() {
		if (this.isBusy) return;
		this.isBusy = true;
		try {
			const found = (await get("/threads", { prefix: this.thread, limit: 1 })).items[0];
			if (found?.id === this.thread && found.last > this.last) {
				const after = this.last || Math.max(0, found.last - PAGE);
				this.items.push(...(await this.#read(after, found.last)));
				this.last = found.last;
				this.changed();
			}
			this.problem = null;
		} catch (problem) {
			if (problem.kind !== "away") this.problem = problem;
		}
		this.isBusy = false;
	}

	async earlier() {
		const upto = this.first - 1;
		this.items.unshift(...(await this.#read(Math.max(0, upto - PAGE), upto)));
		this.changed();
	}

	async #read(after, upto) {
		const found = [];
		for (let from = after; from < upto; from = found.at(-1).number) {
			const { items } = await get(`/threads${at(this.thread)}/messages`, { after: from, limit: Math.min(200, upto - from) });
			if (!items.length) break;
			found.push(...items);
		}
		return found;
	}
}
