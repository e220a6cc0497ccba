// What the bodies of a run say while they work. What was cut off is kept, and marked: it is no part of a result.

import { amount, at, brief, clean, clock, FINAL, get, h, icon } from "../kit.js";

const MOST = 200_000; // characters of a part that are shown
const REASONS = { crash: "its process was lost", error: "it failed", timeout: "it took too long", cancelled: "it was cancelled" };

export function streams(page, path) {
	const own = { names: [], texts: new Map(), isFollowing: true, size: 0 };
	let reading = null;

	const read = async () => {
		for (const { name, last } of own.names) {
			const text = own.texts.get(name) ?? own.texts.set(name, { last: 0, calls: new Map() }).get(name);
			while (text.last < last) {
				const found = await get(`${path}/streams${at(name)}`, { after: text.last, limit: 1000 });
				for (const event of found.items) take(text.calls, event);
				text.last = found.last;
				if (!found.items.length) break;
			}
		}
		page.update();
	};
	const drawn = () => {
		const size = document.body.scrollHeight;
		if (own.isFollowing && own.size && size > own.size) scrollTo(0, size);
		own.size = size;
	};
	const draw = (run) => {
		const isLive = !FINAL.includes(run.status);
		requestAnimationFrame(drawn);
		return h("div.values",
			isLive && h("div.foot.row", h("span.grow"), h("button.pill", { "aria-pressed": own.isFollowing, click: () => ((own.isFollowing = !own.isFollowing), page.update()) }, "follow")),
			own.names.map(({ name }) => h("section.stream", { key: name }, h("h3", brief(name, 80)), [...(own.texts.get(name)?.calls ?? [])].map(([key, parts]) => h("div", { key }, h("p.quiet.mono", brief(key, 120)), parts.map(part))))),
		);
	};
	return {
		draw,
		get names() {
			return own.names;
		},
		set names(names) {
			own.names = names;
		},
		/** One look at a time. */
		read: () => (reading ??= read().finally(() => (reading = null))),
	};
}

/** The parts of what each call said: a reset ends one that does not count. */
function take(calls, { key, kind, text, at: said, reason }) {
	const parts = calls.get(key) ?? calls.set(key, []).get(key);
	if (kind === "text") {
		if (!parts.length || parts.at(-1).lost) parts.push({ text: "", lost: null });
		parts.at(-1).text += text;
	} else if (kind === "reset" && parts.length && !parts.at(-1).lost) parts.at(-1).lost = { at: said, reason };
}

function part({ text, lost }, n) {
	const shown = h(`pre${lost ? ".salvaged" : ""}`, { key: `t${n}` }, h("span", clean(text.slice(-MOST))));
	if (!lost) return shown;
	return [shown, h("p.cut-line", { key: `c${n}` }, icon("cut_off"), `Cut off at ${clock(lost.at)}: ${REASONS[lost.reason] ?? brief(lost.reason, 60)}. ${amount(text.length)} characters salvaged, not part of the result.`)];
}
