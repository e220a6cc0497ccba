// The timeline: a tree and its lanes, in a pool of rows. Only what can be seen is in the page; a fold or a filter makes
// another list of rows, never more elements.

import { at, get } from "../api.js";
import { brief, clean, h, icon } from "../dom.js";
import { button, FINAL, segments } from "../ui.js";
import { amount, clock, count, length, money } from "../words.js";
import { Axis, partsOf } from "./axis.js";
import { Calls, hasFailed, isTrouble, labelOf, rowsOf } from "./calls.js";
import { drawMap } from "./minimap.js";

const OVER = 4;
const MARKS = 10;
const NAMES = ["failed", "cut", "effects"];
const VERDICTS = { landed: "it happened", not_landed: "it did not happen", happened: "it happened", not_happened: "it did not happen", failed: "the call failed" };

export function verdictText(said) {
	return `${VERDICTS[said.verdict] ?? said.verdict}${said.by ? `, says ${brief(said.by, 40)}` : ""}`;
}

export class Timeline {
	/** `choose(key)`: somebody looks at a call of the run. */
	constructor(choose) {
		this.choose = choose;
		this.calls = new Calls();
		this.run = null;
		this.folded = new Set();
		this.unfolded = new Set();
		this.children = new Map();
		this.only = new Set();
		this.mode = "time";
		this.isFolding = true;
		this.range = null;
		this.rows = [];
		this.selected = "";
		this.pool = [];
		this.root = h("div.timeline", { own: true });
		this.bar = h("div.timeline-bar");
		this.map = h("canvas.minimap", { "aria-hidden": "true" });
		this.axisBox = h("div.axis", { "aria-hidden": "true" });
		this.back = h("div.lanes-back", { "aria-hidden": "true" });
		this.body = h("div.rows", { role: "treegrid", label: "Calls" });
		this.headBox = h("div.timeline-head", h("div.map-row", h("div.tree-space"), h("div.map-box", this.map, (this.brush = h("i.brush")))), h("div.axis-row", h("div.tree-space"), this.axisBox));
		this.root.append(this.bar, this.headBox, h("div.rows-box", this.back, this.body), legend());
		this.body.addEventListener("click", (event) => this.clicked(event));
		this.body.addEventListener("keydown", (event) => this.pressed(event));
		this.brushing();
		this.onScroll = () => this.schedule();
		addEventListener("scroll", this.onScroll, { passive: true });
		this.sizes = new ResizeObserver(() => this.body.clientWidth !== this.wide && this.layout());
		this.sizes.observe(this.body);
		this.timer = setInterval(() => this.isOpen && !document.hidden && this.layout(), 1000);
	}

	close() {
		removeEventListener("scroll", this.onScroll);
		this.sizes.disconnect();
		clearInterval(this.timer);
		cancelAnimationFrame(this.frame);
	}

	/** Take calls; where somebody looks at the end, they go on looking at the end. */
	take(run, columns) {
		this.run = run;
		const isAtEnd = this.isOpen && this.rows.length > 30 && this.body.getBoundingClientRect().bottom < innerHeight + 80;
		if (columns) this.calls.take(columns, new Date(run.created_at).getTime());
		this.rebuild();
		if (isAtEnd) scrollBy(0, this.body.getBoundingClientRect().bottom - innerHeight + 60);
	}

	get isOpen() {
		return this.run && !FINAL.includes(this.run.status);
	}

	get now() {
		if (!this.isOpen) return this.calls.lastAt;
		return Math.max(Date.now(), this.calls.lastAt);
	}

	get lostAt() {
		return this.run?.is_cut_off ? this.calls.lastAt : null;
	}

	// what is shown

	rebuild() {
		const { now, lostAt } = this;
		const tests = { failed: hasFailed, cut: (call, calls) => !calls.isPlain(call) && calls.pieces(call, now, lostAt).some((piece) => piece.kind === "cut"), effects: (call) => call.kind === "effect" };
		const wanted = [...this.only].map((name) => tests[name]);
		const only = wanted.length ? (call, calls) => wanted.some((test) => test(call, calls)) : null;
		this.rows = rowsOf(this.calls, { folded: this.folded, unfolded: this.unfolded, children: this.children, only, now: this.now });
		this.hasChosen = this.place(this.selected) !== undefined;
		this.counts = { failed: 0, cut: 0, effects: 0 };
		this.most = { tokens: 1, cost: 1e-9 };
		for (const call of this.calls.list) {
			for (const name of NAMES) if (tests[name](call, this.calls)) this.counts[name] += 1;
			this.most.tokens = Math.max(this.most.tokens, call.tokens);
			this.most.cost = Math.max(this.most.cost, call.cost);
		}
		this.drawBar();
		this.layout();
	}

	/** Where the row with an id is; undefined: nowhere. */
	place(id) {
		const number = id ? this.rows.findIndex((row) => row.id === id) : -1;
		return number < 0 ? undefined : number;
	}

	drawBar() {
		const filters = [["failed", "failed"], ["cut", "cut off"], ["effects", "effects"]];
		const turn = (name) => {
			if (this.only.has(name)) this.only.delete(name);
			else this.only.add(name);
			this.rebuild();
		};
		const fresh = [
			segments("Bars show", [["time", "time"], ["tokens", "tokens"], ["cost", "cost"]], this.mode, (mode) => ((this.mode = mode), this.rebuild())),
			h("div.pills", { role: "group", label: "Show only" }, filters.filter(([name]) => this.counts[name] || this.only.has(name)).map(([name, word]) => h("button.pill", { "aria-pressed": this.only.has(name), click: () => turn(name) }, word, " ", h("b", amount(this.counts[name]))))),
			h("span.grow"),
			h("button.pill.fold", { "aria-pressed": this.isFolding, click: () => ((this.isFolding = !this.isFolding), this.rebuild()) }, "fold idle time"),
			button("Fit", () => this.fit(), { kind: "small plain", keys: "z" }),
		];
		const focused = [...this.bar.querySelectorAll("button")].indexOf(document.activeElement);
		this.bar.replaceChildren(...fresh);
		if (focused >= 0) this.bar.querySelectorAll("button")[focused]?.focus();
	}

	fit() {
		this.range = null;
		this.layout();
	}

	/** Look closer, or from further away, at the call that is selected. */
	zoom(by) {
		if (!this.whole) return;
		const { from, to } = this.range ?? this.whole;
		const middle = this.rows[this.place(this.selected)]?.call?.began ?? (from + to) / 2;
		const half = Math.max(1, ((to - from) / 2) * by);
		this.range = { from: Math.max(this.whole.from, middle - half), to: Math.min(this.whole.to, middle + half) };
		this.layout();
	}

	layout() {
		if (!this.root.isConnected) return;
		// Measured first: a look behind a change has the browser lay out the page again.
		const style = getComputedStyle(this.root);
		this.height = parseInt(style.getPropertyValue("--row"), 10) || 26;
		this.treeWidth = parseInt(style.getPropertyValue("--tree"), 10) || 208;
		const paint = Object.fromEntries(["wait", "sunken", "strong", "bad"].map((name) => [name, style.getPropertyValue(`--${name}`)]));
		const { top, width: wide } = this.body.getBoundingClientRect();
		const map = this.map.parentElement.getBoundingClientRect();
		this.wide = this.body.clientWidth;
		const width = wide - this.treeWidth - 8;
		if (width <= 0 || !this.calls.claims.length) {
			if (this.calls.list.length === 0) this.body.style.height = "0px";
			return;
		}
		const now = this.now;
		const begin = Math.min(this.calls.claims[0].at, this.calls.list[0]?.began ?? Infinity);
		const outages = this.lostAt ? [...this.calls.outages, { from: this.lostAt, to: now, isNow: true }] : this.calls.outages;
		this.whole = { from: begin, to: Math.max(now, begin + 1), outages, busy: this.calls.busy(now, this.lostAt, (now - begin) / 4000) };
		const { from, to } = this.range ?? this.whole;
		const inside = this.whole.busy.filter((span) => span[1] >= from && span[0] <= to);
		this.axis = new Axis(partsOf(inside, outages.filter((each) => each.to >= from && each.from <= to), from, to, this.isFolding), width);
		this.version = (this.version ?? 0) + 1;
		this.body.style.height = `${this.rows.length * this.height}px`;
		this.body.setAttribute("aria-rowcount", String(this.rows.length));
		this.drawAxis(now);
		drawMap(this, map, paint);
		this.drawRows(top);
	}

	drawAxis(now) {
		const { found, step } = this.axis.ticks(innerWidth < 720 ? 66 : 84);
		const box = [];
		const behind = [];
		let edge = -99;
		for (const part of this.axis.parts) {
			if (part.kind === "work" || (!part.isFolded && part.kind === "idle")) continue;
			const isDown = part.kind === "down";
			behind.push(h("i", { class: isDown ? "down" : "idle", style: { left: part.x, width: Math.max(1, part.size) } }));
			const text = `${isDown && part.size > 74 ? "down " : ""}${length((part.to - part.from) / 1000)}`;
			const middle = part.x + part.size / 2;
			const half = text.length * 3.4 + 7;
			const left = Math.max(half, Math.min(this.axis.width - half, middle));
			if (left - half > edge && part.size > 7) {
				box.push(h("span", { class: `fold-label ${isDown ? "down" : ""}`, style: { left }, title: isDown ? `down ${length((part.to - part.from) / 1000)}` : `nothing was executed for ${length((part.to - part.from) / 1000)}` }, text));
				edge = left + half + 2;
			}
		}
		const kept = this.calls.claims.slice(1).slice(-60);
		let lineEdge = -99;
		const places = [];
		for (const claim of kept) {
			if (claim.at < this.axis.from || claim.at > this.axis.to) continue;
			const x = this.axis.at(claim.at);
			behind.push(h("i.resumed", { style: { left: x } }));
			const number = this.keptAt(claim);
			if (number && x - lineEdge > 62) {
				const isLate = x > this.axis.width - 52;
				box.push(h("span", { class: `kept${isLate ? " late" : ""}`, style: { left: x } }, `↺ ${number} kept`));
				lineEdge = x;
				places.push(isLate ? [x - 56, x] : [x, x + 56]);
			}
		}
		for (const tick of found) {
			behind.push(h("i.tick", { style: { left: tick.x } }));
			if (tick.x > 24 && tick.x < this.axis.width - 26 && !places.some(([from, to]) => tick.x + 30 > from && tick.x - 30 < to)) box.push(h("span.tick", { style: { left: tick.x } }, tickText(tick.at, step)));
		}
		if (this.isOpen && !this.range && this.run.status === "running" && !this.lostAt) behind.push(h("i.now", { style: { left: this.axis.at(now) } }));
		this.axisBox.replaceChildren(...box);
		this.back.replaceChildren(...behind);
	}

	/** How many calls an execution answered from the journal. */
	keptAt(claim) {
		if (claim.replayed) return claim.replayed;
		let number = 0;
		for (const call of this.calls.list) if (call.ended !== null && call.ended <= claim.at) number += 1;
		return number;
	}

	brushing() {
		const box = this.map.parentElement;
		let began = null;
		const time = (event) => {
			const rect = box.getBoundingClientRect();
			const share = Math.max(0, Math.min(1, (event.clientX - rect.left) / rect.width));
			return this.whole.from + share * (this.whole.to - this.whole.from);
		};
		box.addEventListener("pointerdown", (event) => {
			if (!this.whole) return;
			began = time(event);
			box.setPointerCapture(event.pointerId);
		});
		box.addEventListener("pointermove", (event) => {
			if (began === null) return;
			const [from, to] = [began, time(event)].sort((a, b) => a - b);
			if (to - from < (this.whole.to - this.whole.from) * 0.004) return;
			this.range = { from, to };
			this.layout();
		});
		box.addEventListener("pointerup", () => {
			if (began !== null && !this.range) this.fit();
			began = null;
		});
		box.addEventListener("dblclick", () => this.fit());
	}

	// rows

	schedule() {
		if (this.frame) return;
		this.frame = requestAnimationFrame(() => {
			this.frame = 0;
			this.drawRows();
		});
	}

	drawRows(top = this.body.getBoundingClientRect().top) {
		if (!this.axis) return;
		const first = Math.max(0, Math.floor(-top / this.height) - OVER);
		const wanted = Math.min(this.rows.length - first, Math.ceil(innerHeight / this.height) + 2 * OVER);
		const size = Math.max(0, wanted);
		while (this.pool.length < size) this.pool.push(this.newRow());
		while (this.pool.length > size) this.pool.pop().element.remove();
		// A row keeps its element while it can be seen, so that focus and selection stay with it.
		for (let n = first; n < first + size; n += 1) {
			const slot = this.pool[n % size];
			if (slot.number !== n || slot.version !== this.version || slot.row !== this.rows[n] || slot.isSelected !== (this.rows[n].id === this.selected)) this.drawRow(slot, n);
		}
	}

	newRow() {
		const twist = h("span.twist");
		const shape = icon("step");
		const label = h("span.label");
		const took = h("span.took");
		const tree = h("div.tree", { role: "gridcell" }, twist, shape, label, took);
		const lane = h("div.lane", { role: "gridcell" });
		const element = h("div.row", { role: "row" }, tree, lane);
		this.body.append(element);
		return { element, tree, twist, use: shape.firstChild, label, took, lane, number: -1, version: 0 };
	}

	drawRow(slot, number) {
		const row = this.rows[number];
		const { element } = slot;
		const isSelected = row.id === this.selected;
		Object.assign(slot, { number, row, version: this.version, isSelected });
		element.style.transform = `translateY(${number * this.height}px)`;
		element.dataset.number = String(number);
		element.className = `row ${row.kind}${isSelected ? " chosen" : ""}`;
		element.tabIndex = isSelected || (!this.hasChosen && number === 0) ? 0 : -1;
		element.setAttribute("aria-rowindex", String(number + 1));
		element.setAttribute("aria-level", String(row.level + 1));
		element.setAttribute("aria-selected", String(isSelected));
		if (row.isOpen === null || row.isOpen === undefined) element.removeAttribute("aria-expanded");
		else element.setAttribute("aria-expanded", String(row.isOpen));
		slot.tree.style.setProperty("--level", String(row.level));
		slot.twist.className = `twist ${row.isOpen === true ? "open" : row.isOpen === false ? "shut" : ""}`;
		slot.label.textContent = clean(row.label ?? labelOf(row.call)).slice(0, 200);
		if (row.kind === "branch" || this.mode !== "time") slot.bar = null;
		if (row.kind === "branch") {
			slot.use.setAttribute("href", "#i-branch");
			slot.took.textContent = count(row.count, "call");
			element.setAttribute("aria-label", `branch ${row.label}, ${count(row.count, "call")}`);
			slot.lane.replaceChildren(...(this.mode === "time" ? this.piece({ from: row.from, to: row.to, kind: "group" }) : []));
			return;
		}
		const { call } = row;
		slot.use.setAttribute("href", `#i-${call.kind === "step" && call.tokens ? "tokens" : call.kind}`);
		const isLoud = call.status === "in doubt" || call.status === "cut off" || call.status === "failed";
		slot.took.className = `took${isLoud ? " loud" : ""}`;
		slot.took.textContent = call.extra?.doubt ? "◈→✓" : isLoud ? call.status : call.ended === null ? (call.status === "running" ? "runs" : "open") : length((call.kind === "step" || call.kind === "effect" ? call.took : call.ended - call.began) / 1000);
		element.setAttribute("aria-label", this.described(row));
		if (this.mode !== "time") {
			const value = this.mode === "tokens" ? call.tokens : call.cost;
			const share = value / this.most[this.mode];
			slot.lane.replaceChildren(...(value ? [h("i", { class: `bar ${this.mode === "cost" ? "effect" : "tokens"}`, style: { left: 0, width: Math.max(2, share * (this.axis.width - 70)) } }), h("span.beside", { style: { left: share * (this.axis.width - 70) + 8 } }, this.mode === "tokens" ? amount(value) : money(value))] : []));
			return;
		}
		const now = this.now;
		const pieces = row.calls.pieces(call, now, row.calls === this.calls ? this.lostAt : null);
		const isNew = row.calls.claims.at(-1)?.at <= call.ended; // nobody has answered it from the journal
		if (isNew && pieces.length === 1 && slot.bar && row.calls.isPlain(call) && call.ended >= this.axis.from && pieces[0].from <= this.axis.to) return this.reuse(slot, pieces[0]);
		const nodes = pieces.flatMap((piece) => this.piece(piece, call));
		if (call.ended !== null) {
			let marks = 0;
			for (const claim of row.calls.claims) {
				if (claim.at <= call.ended || claim.at < this.axis.from || claim.at > this.axis.to || marks >= MARKS || claim === row.calls.claims[0]) continue;
				nodes.push(h("i.replayed", { style: { left: this.axis.at(claim.at) + 3 } }));
				marks += 1;
			}
		}
		slot.lane.replaceChildren(...nodes);
		slot.bar = nodes.length === 1 && row.calls.isPlain(call) ? nodes[0] : null;
	}

	/** Most rows are one bar: it is moved, and not made anew. */
	reuse({ bar }, { from, to, kind }) {
		const left = this.axis.at(from);
		bar.className = `bar ${kind}`;
		bar.style.left = `${left}px`;
		bar.style.width = `${Math.max(3, this.axis.at(to) - left)}px`;
	}

	piece(piece, call = null) {
		if (piece.to < this.axis.from || piece.from > this.axis.to) return [];
		const left = this.axis.at(piece.from);
		const right = this.axis.at(piece.to);
		const width = right - left;
		if (piece.kind.startsWith("doubt")) return this.doubt(piece, left, right);
		const least = piece.kind === "cut" ? 11 : piece.kind === "off" ? 0 : 3;
		const nodes = [h("i", { class: `bar ${piece.kind}`, style: { left: piece.kind === "cut" && width < least ? Math.max(0, right - least + 3) : left, width: Math.max(least, width) } })];
		if (piece.kind === "wait open") {
			const text = { ask: "waits for a person", receive: "waits for a signal", sleep: piece.due ? `until ${clock(piece.due)}` : "sleeps" }[call?.kind] ?? "waits";
			nodes.push(h("span", { class: `beside wait${left > 150 ? " before" : ""}`, style: { left: left > 150 ? left - 6 : left + 4 } }, text));
		}
		return nodes;
	}

	doubt(piece, left, right) {
		const isOpen = !piece.said;
		const whole = isOpen ? "in doubt: waits for you" : `in doubt → ${verdictText(piece.said)}`;
		const fits = (words) => left > words.length * 5.6 + 16 || this.axis.width - right > words.length * 5.6 + 18;
		const text = fits(whole) ? whole : isOpen ? "in doubt" : "settled";
		const isBefore = left > text.length * 5.6 + 16;
		const nodes = [h("i.doubt-line", { style: { left: left, width: Math.max(0, right - left) } }), h("i.doubt-mark", { style: { left } }, icon("in_doubt"))];
		if (!isOpen) nodes.push(h("i.doubt-end", { style: { left: right } }, icon("done")));
		nodes.push(h("span", { class: `beside doubt${isBefore ? " before" : ""}`, style: { left: isBefore ? left - 12 : Math.max(right, left) + 14 } }, text));
		return nodes;
	}

	described(row) {
		const { call } = row;
		const parts = [labelOf(call), call.kind, call.status, `at ${clock(call.began)}`];
		if (call.took) parts.push(`took ${length(call.took / 1000)}`);
		if (call.extra?.attempts) parts.push(`${count(call.extra.attempts.length, "failed attempt")}`);
		if (call.extra?.doubt) parts.push(`was in doubt, ${verdictText(call.extra.doubt)}`);
		if (call.tokens) parts.push(`${amount(call.tokens)} tokens`);
		return clean(parts.join(", "));
	}

	// choosing

	clicked(event) {
		const element = event.target.closest(".row");
		if (!element) return;
		const row = this.rows[Number(element.dataset.number)];
		if (event.target.closest(".twist") || row.kind === "branch") this.turn(row);
		this.select(row);
	}

	select(row, { isQuiet = false } = {}) {
		if (!row) return;
		Object.assign(this, { selected: row.id, hasChosen: true });
		this.drawRows();
		for (const slot of this.pool) slot.element.tabIndex = slot.row?.id === row.id ? 0 : -1;
		if (!isQuiet && row.kind === "call") this.choose(row.call.key, row.calls === this.calls ? null : row);
	}

	/** Show the call with a key, wherever it is. */
	reveal(key) {
		const call = this.calls.list.find((each) => each.key === key);
		if (!call) return false;
		let isOther = false;
		for (let path = call.branch; path; path = path.includes("/") ? path.slice(0, path.lastIndexOf("/")) : "") isOther = this.folded.delete(`${path}/`) || isOther;
		if (isOther) this.rebuild();
		const number = this.place(key);
		if (number === undefined) return false;
		this.select(this.rows[number], { isQuiet: true });
		return true;
	}

	async turn(row, wanted = null) {
		const isOpen = wanted ?? !row.isOpen;
		if (row.kind === "branch") {
			if (isOpen) this.folded.delete(row.id);
			else this.folded.add(row.id);
		} else if (row.child) {
			if (isOpen) this.unfolded.add(row.id);
			else this.unfolded.delete(row.id);
			if (isOpen && !this.children.has(row.child)) {
				const calls = new Calls();
				this.children.set(row.child, calls);
				const found = await get(`/runs${at(row.child)}/calls`).catch(() => null);
				if (found) calls.take(found, row.call.began);
			}
		} else return;
		this.rebuild();
	}

	move(step, fits = null) {
		let number = this.place(this.selected) ?? (step > 0 ? -1 : this.rows.length);
		do number += step;
		while (fits && this.rows[number] && !fits(this.rows[number]));
		if (!this.rows[number]) number = this.place(this.selected); // there is no further one: it stays, and has the focus
		const row = this.rows[number];
		if (!row) return;
		const top = this.body.getBoundingClientRect().top + number * this.height;
		const head = this.headBox.getBoundingClientRect().height + 60;
		if (top < head) scrollBy(0, top - head - 10);
		else if (top + this.height > innerHeight - 70) scrollBy(0, top + this.height - innerHeight + 90);
		this.drawRows();
		this.select(row);
		this.pool.find((slot) => slot.number === number)?.element.focus({ preventScroll: true });
	}

	toTrouble(step) {
		this.move(step, (row) => row.kind === "call" && isTrouble(row.call));
	}

	pressed(event) {
		const row = this.rows[this.place(this.selected)];
		const acts = {
			ArrowDown: () => this.move(1),
			ArrowUp: () => this.move(-1),
			ArrowLeft: () => row && (row.isOpen ? this.turn(row, false) : this.move(-1, (each) => each.level < row.level)),
			ArrowRight: () => row && row.isOpen === false && this.turn(row, true),
			Home: () => ((this.selected = ""), this.move(1)),
			End: () => ((this.selected = ""), this.move(-1)),
			Enter: () => row && this.select(row),
			" ": () => row && this.turn(row),
		};
		if (!acts[event.key] || event.ctrlKey || event.metaKey) return;
		event.preventDefault();
		acts[event.key]();
	}
}

/** A time, as exact as the steps between the lines. */
function tickText(at, step) {
	if (step >= 1000) return clock(at);
	return clock(at, { withMs: true }).slice(3, step >= 100 ? 10 : step >= 10 ? 11 : 12);
}

function legend() {
	const kinds = [["step", "step"], ["tokens", "step with tokens"], ["effect", "effect"], ["child", "child run"], ["wait", "wait"], ["failed", "failed attempt"], ["cut", "cut off"]];
	return h("div.timeline-legend", { "aria-hidden": "true" }, kinds.map(([kind, word]) => h("span", h("i", { class: `bar ${kind}` }), word)), h("span", h("i.doubt-line"), "in doubt"), h("span", h("i.replayed"), "from the journal"));
}
