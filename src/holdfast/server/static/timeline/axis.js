// An axis that folds idle time: work is drawn to scale, outages and idle time get a width in pixels and say how long
// they were. On a clock's axis a run that works for a minute and waits for a day would be a dot.

const DOWN_PX = 54;
const IDLE_PX = 46;
const NICE_S = [0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 1800, 3600, 7200, 21_600, 86_400, 604_800];

/** The parts of a time: {from, to, kind: "work" | "down" | "idle", isFolded}. */
export function partsOf(busy, outages, from, to, isFolding) {
	const gaps = outages.map((each) => ({ from: each.from, to: each.to, kind: "down", outage: each }));
	let at = from;
	const idle = (start, end) => {
		let here = start;
		for (const gap of outages) {
			if (gap.to <= here || gap.from >= end) continue;
			if (gap.from > here) gaps.push({ from: here, to: gap.from, kind: "idle" });
			here = Math.max(here, gap.to);
		}
		if (end > here) gaps.push({ from: here, to: end, kind: "idle" });
	};
	for (const [start, end] of busy) {
		if (start > at) idle(at, Math.min(start, to));
		at = Math.max(at, end);
	}
	if (to > at) idle(at, to);
	let left = to - from;
	const folded = [];
	for (const gap of gaps.sort((a, b) => b.to - b.from - (a.to - a.from))) {
		const span = gap.to - gap.from;
		const isLong = span > left * (gap.kind === "down" ? 0.03 : 0.1);
		if (isFolding && isLong && span < left) {
			gap.isFolded = true;
			left -= span;
		}
		if (gap.isFolded || gap.kind === "down") folded.push(gap);
	}
	folded.sort((a, b) => a.from - b.from);
	const parts = [];
	at = from;
	for (const gap of folded) {
		const start = Math.max(from, gap.from);
		const end = Math.min(to, gap.to);
		if (end <= start && gap.to !== gap.from) continue;
		if (start > at) parts.push({ from: at, to: start, kind: "work" });
		parts.push({ ...gap, from: Math.max(at, start), to: end });
		at = Math.max(at, end);
	}
	if (to > at || !parts.length) parts.push({ from: at, to: Math.max(to, at + 1), kind: "work" });
	return parts;
}

export class Axis {
	constructor(parts, width) {
		this.width = width;
		const folds = parts.filter((part) => part.isFolded);
		const wanted = folds.reduce((sum, part) => sum + (part.kind === "down" ? DOWN_PX : IDLE_PX), 0);
		const shrink = Math.min(1, (width * 0.5) / Math.max(1, wanted));
		const work = parts.filter((part) => !part.isFolded);
		const span = work.reduce((sum, part) => sum + part.to - part.from, 0) || 1;
		const scale = Math.max(1, width - wanted * shrink) / span;
		this.scale = scale;
		this.isTight = shrink < 0.7;
		let x = 0;
		this.parts = parts.map((part) => {
			const size = part.isFolded ? (part.kind === "down" ? DOWN_PX : IDLE_PX) * shrink : (part.to - part.from) * scale;
			const placed = { ...part, x, size };
			x += size;
			return placed;
		});
	}

	at(time) {
		let low = 0;
		let high = this.parts.length - 1;
		while (low < high) {
			const middle = (low + high) >> 1;
			if (this.parts[middle].to < time) low = middle + 1;
			else high = middle;
		}
		const part = this.parts[low];
		const share = part.to > part.from ? (time - part.from) / (part.to - part.from) : 0;
		return part.x + Math.max(0, Math.min(1, share)) * part.size;
	}

	get from() {
		return this.parts[0].from;
	}

	get to() {
		return this.parts.at(-1).to;
	}

	ticks(least = 84) {
		const step = (NICE_S.find((each) => each * 1000 * this.scale >= least) ?? NICE_S.at(-1)) * 1000;
		const found = [];
		for (const part of this.parts) {
			if (part.isFolded) continue;
			for (let at = Math.ceil(part.from / step) * step; at <= part.to && found.length < 60; at += step) {
				const x = this.at(at);
				if (!found.length || x - found.at(-1).x >= least * 0.9) found.push({ at, x });
			}
		}
		return { found, step };
	}
}
