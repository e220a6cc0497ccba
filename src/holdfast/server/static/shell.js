// What stands around every page: the rail, the bar on top, the bar below on phones, and what is said.

import { get } from "./api.js";
import { brief, fill, h, icon } from "./dom.js";
import { showKeys } from "./keys.js";
import { live } from "./live.js";
import { keep, recall } from "./memory.js";
import { Reading } from "./reading.js";
import { go, place, to } from "./router.js";
import { announceBy, button, FINAL, iconButton, openDialog } from "./ui.js";
import { clock, setLocalTime, tickTimes, usesLocalTime } from "./words.js";

const GROUPS = [
	[["overview", "Overview", "home"], ["runs", "Runs", "runs"], ["questions", "Questions", "inbox"], ["in-doubt", "In doubt", "doubt"]],
	[["schedules", "Schedules", "calendar"], ["triggers", "Triggers", "bolt"], ["queues", "Queues", "queue"], ["workers", "Workers", "worker"]],
	[["threads", "Threads", "thread"], ["integrity", "Integrity", "shield"]],
];

const dark = matchMedia("(prefers-color-scheme: dark)");
let wanted = "auto";

export function applyTheme(theme = wanted) {
	wanted = theme;
	document.documentElement.dataset.theme = wanted !== "auto" ? wanted : dark.matches ? "dark" : "light";
}
dark.addEventListener("change", () => applyTheme());

export class Shell {
	constructor(person, isReadOnly) {
		this.person = person;
		this.isReadOnly = isReadOnly;
		this.here = "";
		this.store = null;
		this.title = "Holdfast";
		this.crumbs = [];
		this.message = null;
		this.theme = recall("hf-theme") || "auto";
		applyTheme(this.theme);
		this.skip = h("a.skip", { href: "#main", click: (event) => (event.preventDefault(), this.main.focus()) }, "To the content");
		this.rail = h("nav.rail", { label: "Pages" });
		this.top = h("header.top");
		this.notice = h("div.notice");
		this.main = h("main", { id: "main", tabindex: "-1" });
		this.below = h("nav.below", { label: "Pages, short" });
		this.toast = h("div.toast", { role: "status", "aria-live": "polite" });
		document.body.append(this.skip, this.rail, h("div.column", this.top, this.notice, this.main), this.below, this.toast);
		announceBy((text, kind) => this.announce(text, kind));
		this.overview = new Reading("/overview", null, () => (this.draw(), this.page?.update()));
		for (const event of ["run", "question", "gone", "workers", "resync", "back"]) live.on(event, () => this.overview.again());
		live.on("state", () => this.draw());
		setInterval(() => (tickTimes(), live.state.isLive || this.drawNotice()), 1000);
		document.addEventListener("visibilitychange", () => document.hidden || (tickTimes(), this.overview.again()));
		get("/store").then((store) => ((this.store = store), this.draw()), () => {});
		this.draw();
	}

	/** May this person act? If not: why. */
	get whyNot() {
		if (this.isReadOnly) return "This console changes nothing: it was opened for reading.";
		return this.person.role === "viewer" ? "You may look, not act: your role is viewer." : null;
	}

	get numbers() {
		const data = this.overview.data;
		if (!data) return {};
		const status = data.counts.status;
		const unfinished = Object.entries(status).filter(([name]) => !FINAL.includes(name));
		const many = unfinished.some(([, n]) => typeof n === "string");
		const open = unfinished.reduce((sum, [, n]) => sum + parseInt(n, 10), 0);
		const needs = (kind) => data.needs.filter((each) => each.kind === kind).length;
		return { runs: open ? `${open}${many ? "+" : ""}` : "", questions: needs("question") || "", "in-doubt": needs("in_doubt") || "", needs: data.needs.length };
	}

	entitle(title, crumbs) {
		const mark = JSON.stringify([location.pathname, title, crumbs]);
		if (mark === this.mark) return;
		Object.assign(this, { mark, title, crumbs });
		this.draw();
	}

	draw() {
		const numbers = this.numbers;
		this.here = place().parts[0] ?? "overview";
		const sum = numbers.needs ? `(${numbers.needs}) ` : "";
		document.title = `${sum}${brief(this.title, 80)} · Holdfast`;
		fill(
			this.rail,
			h("a.brand", { href: to() }, icon("anchor"), "holdfast"),
			GROUPS.map((group) => h("div.group", group.map((each) => this.entry(each, numbers)))),
			h("div.foot",
				this.store && h("p", this.store.kind === "sqlite" ? "SQLite" : "PostgreSQL", `, ${this.store.durability} durability`),
				h("p", `${this.person.name}, ${this.isReadOnly ? "reading only" : this.person.role}`),
				h("div.row",
					iconButton(this.isDark ? "moon" : "sun", `Colours: ${this.theme}`, () => this.turn()),
					h("button.text-button", { title: "Times in UTC, or of this place", "aria-pressed": usesLocalTime(), click: () => this.turnTime() }, usesLocalTime() ? "local time" : "UTC"),
					h("button.text-button", { click: showKeys }, h("kbd", "?"), " keys"),
				),
			),
		);
		const [first, ...rest] = this.crumbs;
		fill(
			this.top,
			h("div.crumbs", rest.length ? [h("a", { href: first[1] }, first[0]), h("span", { "aria-hidden": "true" }, "/"), h("span.mono", brief(rest.at(-1)[0], 60))] : h("span", this.crumbs[0]?.[0] ?? this.title)),
			h("button.search", { label: "Search or go to", click: () => this.search() }, icon("search"), h("span", "Search or go to…"), h("kbd", "/")),
			h("span", { class: `live ${live.state.isLive ? "on" : live.state.isFirst ? "first" : "off"}` }, h("i"), h("span", { "aria-live": "polite" }, live.state.isLive ? "live" : live.state.isFirst ? "…" : "not live")),
		);
		fill(
			this.below,
			GROUPS[0].map((each) => this.entry(each, numbers)),
			h("button", { click: () => this.more() }, icon("more"), h("span", "More")),
		);
		this.drawNotice();
	}

	drawNotice() {
		const { isLive, isFirst, since, nextAt } = live.state;
		if (isLive || (isFirst && Date.now() - since < 4000)) return fill(this.notice);
		const wait = Math.max(0, Math.round((nextAt - Date.now()) / 1000));
		fill(
			this.notice,
			h("div.banner.warn",
				icon("cut_off"),
				h("div.grow", h("strong", `Not live since ${clock(since)}.`), " The console cannot reach its server; what you see is from then. ", h("span.num", nextAt ? `It tries again in ${wait} s.` : "It tries again now.")),
				button("Now", () => live.again(), { kind: "small" }),
			),
		);
	}

	entry([name, word, glyph], numbers) {
		const number = numbers[name];
		const isHere = this.here === name;
		return h("a", { key: name, href: to(...(name === "overview" ? [] : [name])), class: isHere ? "here" : null, "aria-current": isHere ? "page" : null }, icon(glyph), h("span", word), number ? [" ", h("b", { class: `number-${name}` }, String(number), h("span.unseen", name === "runs" ? " unfinished" : " open"))] : null);
	}

	announce(text, kind) {
		clearTimeout(this.quiet);
		fill(this.toast, h("p", { class: kind || null }, text));
		this.quiet = setTimeout(() => fill(this.toast), 6000);
	}

	get isDark() {
		return this.theme === "dark" || (this.theme === "auto" && dark.matches);
	}

	turn() {
		this.theme = { auto: this.isDark ? "light" : "dark", light: "dark", dark: "light" }[this.theme];
		keep("hf-theme", this.theme);
		applyTheme(this.theme);
		this.draw();
		this.redraw?.();
	}

	turnTime() {
		setLocalTime(!usesLocalTime());
		this.draw();
		this.redraw?.();
	}

	more() {
		openDialog("More", "more", (update, close) => [
			h("div.menu", GROUPS.slice(1).flat().map(([name, word, glyph]) => h("a", { key: name, href: to(name), click: close }, icon(glyph), word))),
			h("div.menu", button(`Colours: ${this.isDark ? "dark" : "light"}`, () => (this.turn(), update()), { glyph: this.isDark ? "moon" : "sun" }), button(usesLocalTime() ? "Times: local" : "Times: UTC", () => (this.turnTime(), update()), { glyph: "sleeping" })),
			h("footer", button("Close", close)),
		]);
	}

	/** Go to a page, a run by how its id begins, or a filter of runs. */
	search() {
		const state = { text: "", runs: [], at: 0 };
		const pages = GROUPS.flat().map(([name, word, glyph]) => ({ glyph, word, to: to(...(name === "overview" ? [] : [name])) }));
		let number = 0;
		openDialog("Search or go to", "search", (update, close) => {
			const text = state.text.trim().toLowerCase();
			const found = [
				...state.runs.map((run) => ({ glyph: "runs", word: run.id, about: run.agent, to: to("runs", run.id) })),
				...(text ? [{ glyph: "search", word: `Runs that fit “${brief(state.text, 60)}”`, to: to("runs", { q: state.text.trim() }) }] : []),
				...pages.filter((page) => !text || page.word.toLowerCase().includes(text)),
			].slice(0, 12);
			state.at = Math.min(state.at, found.length - 1);
			const open = (each) => (close(), go(each.to));
			const type = async (event) => {
				state.text = event.target.value;
				state.at = 0;
				const mine = (number += 1);
				const prefix = state.text.trim();
				update();
				const answer = prefix && !prefix.includes(":") ? await get("/runs", { prefix, limit: 6 }).catch(() => null) : null;
				if (mine !== number) return;
				state.runs = answer?.items ?? [];
				update();
			};
			const press = (event) => {
				const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
				if (step) state.at = Math.max(0, Math.min(found.length - 1, state.at + step));
				else if (event.key === "Enter" && found[state.at]) open(found[state.at]);
				else return;
				event.preventDefault();
				update();
			};
			return [
				h("label.field", h("span.unseen", "What"), h("input", { type: "search", autofocus: "", placeholder: "the beginning of a run id, a filter, a page", value: state.text, on: { input: type, keydown: press }, role: "combobox", "aria-expanded": "true", "aria-controls": "found", "aria-activedescendant": `found-${state.at}` })),
				h("div.menu", { id: "found", role: "listbox", label: "Found" }, found.map((each, n) => h("button", { key: each.to, id: `found-${n}`, role: "option", tabindex: "-1", "aria-selected": n === state.at, click: () => open(each) }, icon(each.glyph), h("span.grow", brief(each.word, 90)), each.about && h("span.quiet", each.about)))),
			];
		}, { kind: "palette" });
	}
}
