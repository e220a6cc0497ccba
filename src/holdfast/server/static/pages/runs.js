// Runs: one filter, which is the address; views; many at once; a look at one beside the list.

import { actOnMany, amount, brief, button, chip, command, copy, emptyCard, get, go, h, head, icon, iconButton, money, runLink, skeleton, standing, statusOf, to, trouble, when } from "../kit.js";
import { parse, SHOWN_TERMS } from "../filters.js";
import { bars, histogram } from "../histogram.js";
import { moveRow } from "../keys.js";
import { forgetButton, savedViews, saveView } from "../views.js";
import { nothingYet } from "./overview.js";
import { startDialog } from "./starting.js";

const VIEWS = [
	["all", "All", ""],
	["needs", "Needs you", "status:in_doubt status:blocked status:quarantined status:waiting"],
	["unfinished", "Unfinished", "status:queued status:running status:sleeping status:waiting status:paused status:in_doubt status:blocked status:quarantined"],
	["failed", "Failed", "status:failed"],
	["doubt", "In doubt", "status:in_doubt"],
	["cut", "Cut off", "cut_off:yes"],
];
const PAGE = 50;

export function runs(page) {
	const state = { items: null, next: null, fresh: [], problem: null, isBusy: false, selected: new Set(), told: null, peek: page.params.get("peek"), counts: null, unfiltered: null, histogram: null, story: null, number: 0, sizes: new Map() };
	if (page.params.get("view") && !page.params.get("q")) {
		page.params.set("q", VIEWS.find(([name]) => name === page.params.get("view"))?.[2] ?? "");
		page.params.delete("view");
		page.param({});
	}
	const text = () => page.params.get("q") ?? "";
	const filter = () => parse(text());

	const load = async ({ more = false } = {}) => {
		const { given, problem } = filter();
		if (problem) {
			Object.assign(state, { problem: { kind: "filter", title: "This is no filter", message: problem }, items: state.items ?? [], isBusy: false });
			return page.update();
		}
		const number = (state.number += 1);
		state.isBusy = true;
		try {
			const wanted = more ? PAGE : Math.min(200, Math.max(PAGE, state.keep ?? 0));
			const found = await get("/runs", { ...given, limit: wanted, cursor: more ? state.next : null });
			if (number !== state.number) return;
			state.items = more ? [...state.items, ...found.items] : found.items;
			Object.assign(state, { next: found.next, problem: null, isBusy: false, fresh: more ? state.fresh : [] });
		} catch (problem) {
			if (number !== state.number) return;
			Object.assign(state, { problem, isBusy: false });
		}
		page.update();
	};
	const around = async () => {
		const { given, problem } = filter();
		if (problem) return;
		get("/runs/counts", given).then((found) => ((state.counts = found.status), page.update()), () => {});
		for (const [name, query] of savedViews()) {
			const own = parse(query);
			if (!own.problem) get("/runs/counts", own.given).then((found) => (state.sizes.set(name, total(found.status, "")), page.update()), () => {});
		}
		if (text()) get("/runs/counts").then((found) => ((state.unfiltered = found.status), page.update()), () => {});
		histogram(given).then((found) => ((state.histogram = found), page.update()));
	};
	const apply = (wanted) => {
		state.selected.clear();
		state.told = null;
		page.param({ q: wanted.trim(), peek: null });
		state.keep = 0;
		load();
		around();
	};
	const peek = (run) => {
		if (innerWidth < 1800) return;
		state.peek = run.id;
		state.story = null;
		state.peeked = run.agent ? run : null;
		page.param({ peek: run.id });
		get(`/runs/${encodeURIComponent(run.id)}`).then((found) => (state.peek === run.id && (state.peeked = found), page.update()), () => {});
		get(`/runs/${encodeURIComponent(run.id)}/story`).then((found) => (state.peek === run.id && (state.story = found.lines), page.update()), () => {});
	};

	// Live: rows that are there change in place; new ones are counted above the list, and nothing moves under the pointer.
	page.on("run", (run) => {
		const found = state.items?.findIndex((each) => each.id === run.id) ?? -1;
		if (found >= 0) state.items[found] = run;
		else if (state.items && fits(run, filter().given) && !state.fresh.includes(run.id)) state.fresh.push(run.id);
		page.update();
	});
	page.on("progress", ({ id, now, progress, head }) => {
		const found = state.items?.find((each) => each.id === id);
		if (found) Object.assign(found, { now, progress, records: head });
		page.update();
	});
	page.on("gone", ({ id }) => {
		state.items = state.items?.filter((each) => each.id !== id) ?? null;
		page.update();
	});
	for (const event of ["back", "resync"]) page.on(event, () => ((state.keep = state.items?.length), load()));
	let soon = 0;
	page.on("run", () => {
		clearTimeout(soon);
		soon = setTimeout(around, 1500);
	});
	page.ending(() => clearTimeout(soon));

	const back = history.state?.rows;
	state.keep = back ?? 0;
	page.ending(() => history.replaceState({ ...history.state, rows: state.items?.length ?? 0 }, ""));
	load();
	around();
	if (state.peek) peek({ id: state.peek });

	const save = () => {
		if (text() && !filter().problem) saveView(text(), listCommand(filter()), () => (around(), page.update()));
	};
	Object.assign(page.keys, {
		s: save,
		x: () => {
			const row = document.activeElement?.closest?.("[data-row]");
			const id = row?.dataset.key;
			if (!id) return moveRow(1, page.root);
			if (state.selected.has(id)) state.selected.delete(id);
			else state.selected.add(id);
			page.update();
		},
		Escape: () => (state.selected.clear(), (state.told = null), page.update()),
		y: () => copy(listCommand(filter()) || text(), "Command copied."),
	});

	const draw = () => {
		const query = text();
		const { given, terms, problem } = filter();
		const saved = savedViews();
		const view = VIEWS.find(([, , wanted]) => wanted === query)?.[0] ?? "";
		const own = view ? null : saved.find(([, wanted]) => wanted === query);
		const tab = ([name, word, wanted], number) => h("a", { key: name, href: to("runs", { q: wanted }), class: wanted === query ? "here" : null, "aria-current": wanted === query, click: (event) => (event.preventDefault(), apply(wanted)) }, word, number && number !== "0" ? [" ", h("b", number)] : null);
		return [
			head("Runs", total(state.counts), page.shell.whyNot ? null : button("Start a run…", () => startDialog(page.shell, (run) => go(to("runs", run.id))), { glyph: "play" })),
			h("nav.views", { label: "Views" },
				VIEWS.map((each) => tab(each, viewCount(page.shell, each[0]))),
				saved.map(([name, wanted]) => tab([`saved ${name}`, brief(name, 40), wanted], state.sizes.get(name))),
				own && forgetButton(own[0], () => page.update()),
				query && !problem && !own && !view ? button("Save view…", save, { kind: "small plain", keys: "s" }) : null,
			),
			filterBox(page, query, terms, problem, apply),
			state.histogram && (query || state.items?.length) ? h("div.card", h("div.legend", ["done", "unfinished", "failed"].map((kind) => h("span", { key: kind }, h("i", { class: `bin-${kind}` }), kind)), h("span.quiet.end", "drag to choose a time")), bars(state.histogram, (from, until) => apply(`${SHOWN_TERMS.without(terms, ["since", "until"])} since:${from.toISOString()} until:${until.toISOString()}`))) : null,
			state.selected.size ? selectionBar(page, state, given, load) : null,
			state.told && told(state, page),
			h("div", { key: "list", class: state.peek ? "with-peek" : null }, list(page, state, query, apply, load, peek), state.peek && h("aside.peek.card", { label: "The run that is selected" }, peeked(page, state))),
		];
	};
	return { title: () => "Runs", draw };
}

function viewCount(shell, name) {
	const data = shell.overview.data;
	if (!data) return null;
	const status = data.counts.status;
	const sum = (...names) => {
		const found = names.map((each) => status[each] ?? 0);
		const plus = found.some((each) => typeof each === "string") ? "+" : "";
		return `${found.reduce((all, each) => all + parseInt(each, 10), 0)}${plus}`;
	};
	const number = {
		all: () => sum(...Object.keys(status)),
		needs: () => String(data.needs.length),
		unfinished: () => sum("queued", "running", "sleeping", "waiting", "paused", "in_doubt", "blocked", "quarantined"),
		failed: () => sum("failed"),
		doubt: () => sum("in_doubt"),
		cut: () => String(data.needs.filter((each) => each.kind === "cut_off").length),
	}[name]();
	return number;
}

function total(counts, noun = "run") {
	if (!counts) return null;
	const values = Object.values(counts);
	const sum = values.reduce((all, each) => all + parseInt(each, 10), 0);
	return `${amount(sum)}${values.some((each) => typeof each === "string") ? "+" : ""}${noun && ` ${noun}${sum === 1 ? "" : "s"}`}`;
}

function filterBox(page, query, terms, problem, apply) {
	const input = (event) => {
		if (event.key === "Enter") {
			apply(`${SHOWN_TERMS.text(terms)} ${event.target.value}`);
			event.target.value = "";
		} else if (event.key === "Backspace" && !event.target.value && terms.length) apply(SHOWN_TERMS.text(terms.slice(0, -1)));
	};
	return h("div.filter-box",
		h("div", { class: `filter${problem ? " wrong" : ""}` },
			icon("search"),
			terms.map((term, n) => h("span", { key: `${n} ${term.text}`, class: `token${term.problem ? " wrong" : ""}` }, brief(term.text, 60), iconButton("close", `Take away ${brief(term.text, 60)}`, () => apply(SHOWN_TERMS.text(terms.filter((_, at) => at !== n)))))),
			h("input", { type: "text", label: "Filter runs", placeholder: terms.length ? "" : "status:failed  agent:triage  thread:…  queue:…  since:7d  or how a run's id begins", autocomplete: "off", spellcheck: "false", on: { keydown: input } }),
		),
		problem && h("p.error", { role: "alert" }, icon("failed"), problem),
	);
}

function list(page, state, query, apply, load, peek) {
	if (!state.items) return state.problem ? trouble(state.problem, load) : h("div.card", skeleton(8));
	const broken = state.problem && state.problem.kind !== "filter" ? trouble(state.problem, load) : null;
	if (!state.items.length) {
		if (!query) return [broken, nothingYet()];
		const all = state.unfiltered ? total(state.unfiltered) : null;
		return [broken, emptyCard("search", `No run fits ${brief(query, 120)}`, all && `${all} fit without the filter.`, button("Clear the filter", () => apply("")))];
	}
	const isAll = state.items.every((run) => state.selected.has(run.id));
	const choose = (run, event) => {
		if (event.target.checked) state.selected.add(run.id);
		else state.selected.delete(run.id);
		page.update();
	};
	return h("div.card.runs",
		broken,
		state.fresh.length ? h("button.fresh", { click: () => load() }, `${state.fresh.length} new`) : null,
		h("table", { label: "Runs" },
			h("thead", h("tr", h("th.pick", h("input", { type: "checkbox", label: "Select all that are shown", checked: isAll, on: { change: () => (state.items.forEach((run) => (isAll ? state.selected.delete(run.id) : state.selected.add(run.id))), page.update()) } })), ["Status", "Run", "Agent", "Now"].map((name) => h("th", { scope: "col" }, name)), ["Calls", "Cost", "Started"].map((name) => h("th", { scope: "col", class: "num" }, name)))),
			h("tbody",
				state.items.map((run) =>
					h("tr", { key: run.id, row: true, class: state.selected.has(run.id) ? "chosen" : run.id === state.peek ? "peeked" : null, click: (event) => event.target.closest("a, input, button") || (innerWidth >= 1800 ? peek(run) : go(to("runs", run.id))) },
						h("td.pick", h("input", { type: "checkbox", label: `Select ${brief(run.id, 80)}`, checked: state.selected.has(run.id), on: { change: (event) => choose(run, event) } })),
						h("td.s", statusOf(run)),
						h("td.id", h("a.mono.cut", { href: to("runs", run.id), title: run.id }, brief(run.id, 80))),
						h("td.agent", h("span.cut", brief(run.agent, 60))),
						h("td.now", h("span.cut", nowOf(run))),
						h("td.num.calls", amount(run.calls.steps + run.calls.effects)),
						h("td.num.cost", money(run.usage.cost)),
						h("td.num.age", when(run.created_at)),
					),
				),
			),
		),
		state.next ? h("div.more", button(state.isBusy ? "Loading…" : "Show more", () => load({ more: true }), { isOff: state.isBusy })) : null,
	);
}

function nowOf(run) {
	if (run.status === "done" || run.status === "cancelled") return "";
	const text = brief(run.now, 200).replace(/^asks: /, "");
	if (run.progress?.total && run.status === "running") return `${amount(run.progress.done)}/${amount(run.progress.total)} ${brief(run.progress.note ?? "", 100)}`;
	return text;
}

function selectionBar(page, state, given, load) {
	const number = state.selected.size;
	const done = (told) => {
		state.told = told;
		state.selected.clear();
		state.keep = state.items.length;
		load();
	};
	const counted = Object.values(state.counts ?? {});
	const all = counted.some((each) => typeof each === "string") ? null : counted.reduce((sum, each) => sum + each, 0);
	const target = state.isWhole ? { filter: given, expected: all } : { ids: [...state.selected] };
	const size = state.isWhole ? all : number;
	return h("div.selection", { role: "toolbar", label: "Selected runs" },
		h("strong", `${amount(size)} selected`),
		state.next && all !== null && all <= 1000 && !given.cut_off && !given.until ? h("label.check", h("input", { type: "checkbox", checked: Boolean(state.isWhole), on: { change: (event) => ((state.isWhole = event.target.checked), page.update()) } }), `all ${all} that match`) : null,
		["retry", "pause", "resume", "cancel"].map((act) => button(`${act[0].toUpperCase()}${act.slice(1)}…`, () => actOnMany(page.shell, act, target, size, done), { kind: act === "cancel" ? "danger" : "" })),
		h("span.grow"),
		iconButton("close", "Select none", () => (state.selected.clear(), (state.isWhole = false), page.update())),
	);
}

function told(state, page) {
	const by = new Map();
	for (const { id, what } of state.told.items) by.set(what, [...(by.get(what) ?? []), id]);
	return h("div.banner.info", { role: "status" },
		icon("info"),
		h("div.grow", [...by].map(([what, ids]) => h("p", { key: what }, h("strong", `${ids.length} ${what.replaceAll("_", " ")}: `), ids.slice(0, 12).map((id) => [runLink(id, 60), " "]), ids.length > 12 ? `and ${ids.length - 12} more` : null)), state.told.left ? h("p", `${state.told.left} were left: at most 1,000 at once.`) : null),
		iconButton("close", "Close", () => ((state.told = null), page.update())),
	);
}

function peeked(page, state) {
	const run = state.items?.find((each) => each.id === state.peek) ?? state.peeked;
	if (!run) return skeleton(4);
	return [
		h("header", chip(standing(run)), h("h2", brief(run.agent, 60)), h("span.mono.quiet.cut", brief(run.id, 60)), h("span.grow"), h("a.button", { href: to("runs", run.id) }, "Open")),
		h("p.quiet", nowOf(run)),
		state.story ? h("ol.story", state.story.slice(0, 40).map((line) => h("li", brief(line, 400)))) : skeleton(5),
	];
}

function fits(run, given) {
	const has = (name, value) => given[name] === undefined || given[name] === value;
	if (given.status?.length && !given.status.includes(run.status)) return false;
	if (given.prefix && !run.id.startsWith(given.prefix)) return false;
	if (given.cut_off && !run.is_cut_off) return false;
	if ((given.since && run.created_at < given.since) || (given.until && run.created_at >= given.until)) return false;
	if ((given.tag ?? []).some((tag) => run.tags[tag.split("=")[0]] !== tag.slice(tag.indexOf("=") + 1))) return false;
	return has("agent", run.agent) && has("thread", run.thread_id) && has("queue", run.queue) && has("parent", run.parent_id ?? undefined);
}

/** The command that lists the same; empty where it has no such filter. */
function listCommand({ given, terms }) {
	const age = terms.find((term) => /^since:\d+[smhdw]$/.test(term.text))?.text.slice(6);
	if (given.until || given.parent || given.cut_off || given.prefix || (given.since && !age)) return "";
	const option = (name) => [given[name] ?? []].flat().flatMap((each) => [`--${name}`, each]);
	return command("runs", ["status", "agent", "thread", "queue", "tag"].flatMap(option), age ? ["--since", age] : []);
}
