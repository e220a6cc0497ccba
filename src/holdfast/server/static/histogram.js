// Runs over time: done, unfinished, failed.

import { get } from "./api.js";
import { h } from "./dom.js";
import { clock, day } from "./words.js";

const KINDS = ["done", "unfinished", "failed"];
const BINS = 60;

const sizeOf = (bin) => KINDS.reduce((sum, kind) => sum + (bin[kind] ?? 0), 0);

/** How many runs began when, in the last day or as long as there are any; null: the server does not tell. */
export async function histogram(given) {
	try {
		let found = await get("/runs/histogram", { ...given, bins: BINS });
		for (let n = 0; n < 2 && !given.since; n += 1) {
			const first = found.bins.findIndex(sizeOf);
			if (first < BINS / 3) break;
			const since = new Date(new Date(found.from).getTime() + first * found.bin_s * 1000).toISOString();
			found = await get("/runs/histogram", { ...given, since, bins: BINS });
		}
		return found;
	} catch {
		return null;
	}
}

/** Bars; with `choose`, a drag over them chooses a time. */
export function bars(found, choose = null) {
	const most = Math.max(1, ...found.bins.map(sizeOf));
	const from = new Date(found.from).getTime();
	const span = new Date(found.to).getTime() - from;
	const label = (share) => (span > 86_400_000 ? day(from + share * span) : clock(from + share * span));
	const total = found.bins.reduce((sum, bin) => sum + sizeOf(bin), 0);
	return h("div", { class: `histogram${choose ? " drag" : ""}`, role: "img", label: `${total} runs from ${label(0)} on` },
		h("div.bins", { on: choose ? dragging(found, choose) : {} }, found.bins.map((bin, n) => h("span", { key: String(n) }, KINDS.map((kind) => (bin[kind] ? h("i", { class: `bin-${kind}`, style: { height: `${Math.max(3, (bin[kind] / most) * 100)}%` } }) : null))))),
		h("div.scale", [0, 0.33, 0.66].map((share) => h("span", label(share))), h("span", "now")),
	);
}

function dragging(found, choose) {
	let began = null;
	const share = (event) => {
		const box = event.currentTarget.getBoundingClientRect();
		return Math.max(0, Math.min(1, (event.clientX - box.left) / box.width));
	};
	return {
		pointerdown: (event) => (began = share(event)),
		pointerup: (event) => {
			if (began === null) return;
			const [left, right] = [began, share(event)].sort((a, b) => a - b);
			began = null;
			if (right - left < 0.01) return;
			const from = new Date(found.from).getTime();
			const span = new Date(found.to).getTime() - from;
			choose(new Date(from + left * span), new Date(from + right * span));
		},
	};
}
