// Overview: what needs somebody first, then what goes on.

import { amount, at, brief, card, chip, commandLine, empty, emptyCard, FINAL, h, head, icon, length, mayAct, meter, money, post, quiet, relative, runLink, say, shown, standing, to, when } from "../kit.js";
import { bars, histogram } from "../histogram.js";
import { CAUSES } from "./doubts.js";

const STUCK = ["in_doubt", "quarantined", "blocked", "cut_off"];

export function overview(page) {
	const reading = page.shell.overview;
	reading.again();
	const active = page.read("/runs", { status: ["running", "queued"], limit: 8 }, ["run", "progress"]);
	const extras = { histogram: null };
	const look = () => histogram({}).then((found) => ((extras.histogram = found), page.update()));
	look();
	page.every(15_000, look);

	const draw = (data) => {
		const needs = sorted(data.needs);
		const status = data.counts.status;
		const total = Object.values(status).length;
		if (!total && !needs.length) return nothingYet();
		return [
			tiles(data, needs.length),
			h("div.columns",
				h("section.card.needs",
					h("header", h("h2", "What needs you"), quiet("what is stuck first, then questions by due time")),
					needs.length ? h("ul.list", needs.map((each) => need(page, each))) : empty("done", "Nothing needs you", "Questions and whatever gets stuck appear here."),
				),
				h("div.side",
					extras.histogram && card("Runs started", `last ${length((new Date(extras.histogram.to) - new Date(extras.histogram.from)) / 1000)}`, bars(extras.histogram)),
					happening(active.data?.items.filter((run) => !run.is_cut_off) ?? []),
					working(data.workers),
					coming(data.next_fires),
				),
			),
		];
	};
	return {
		title: () => "Overview",
		draw: () => [head("Overview", null), shown(reading, draw)],
	};
}

function sorted(needs) {
	const place = (each) => (each.kind === "question" ? 10 : STUCK.indexOf(each.kind));
	const due = (each) => each.question?.due_at ?? "9999";
	return needs.map((each, n) => [each, n]).sort(([a, n], [b, m]) => place(a) - place(b) || (due(a) < due(b) ? -1 : due(a) > due(b) ? 1 : n - m)).map(([each]) => each);
}

function tiles(data, needs) {
	const status = data.counts.status;
	const number = (...names) => names.reduce((sum, name) => sum + (parseInt(status[name], 10) || 0), 0);
	const more = (...names) => (names.some((name) => typeof status[name] === "string") ? "+" : "");
	const lost = data.needs.filter((each) => each.kind === "cut_off").length;
	const { outages, saved_s, saved_tokens, saved_cost, is_all } = data.resumed;
	const saved = [money(saved_cost), saved_s && length(saved_s), saved_tokens && `${amount(saved_tokens)} tokens`].filter(Boolean);
	const failed = `${amount(number("failed"))}${more("failed")} failed`;
	const all = [
		["Needs you", needs, needs ? "" : "nothing", needs ? "loud" : ""],
		["Running", Math.max(0, number("running") - lost), `${number("queued")} queued`],
		["Asleep or waiting", number("sleeping", "waiting", "paused"), "need no process"],
		["Ended", `${amount(number(...FINAL))}${more(...FINAL)}`, failed],
		["Outages, 24 h", `${outages}${is_all ? "" : "+"}`, lost ? `${lost} cut off now` : outages ? "all recovered" : "no process was lost"],
		["Saved by resuming", saved[0] ?? "–", saved.slice(1).join(" · ") || "24 h"],
	];
	return h("dl.tiles", all.map(([name, value, about, kind]) => h("div", { key: name, class: kind || null }, h("dt", name), h("dd", h("b", String(value)), h("span", about || "\u00a0")))));
}

function need(page, each) {
	if (each.kind === "question") return asked(page, each.question);
	const { run } = each;
	const told = {
		in_doubt: [`Did ${brief(run.now, 60).replace(/ \(.*\)$/, "") || run.agent} happen?`, "Settle…", to("in-doubt", { run: run.id })],
		quarantined: [`${run.agent}: stored data is damaged`, "Look", to("runs", run.id)],
		blocked: [`${run.agent}: ${brief(run.now, 120) || "blocked"}`, "Look", to("runs", run.id)],
		cut_off: [`${run.agent} was cut off`, "How to go on", to("runs", run.id)],
	}[each.kind] ?? [run.agent, "Look", to("runs", run.id)];
	return h("li", { key: `${each.kind} ${run.id}`, row: true },
		chip(each.kind),
		h("div.what", h("strong", brief(told[0], 160)), h("span", runLink(run.id, 60), quiet(` · ${about(each.kind, run)}`))),
		h("span.quiet.age", when(run.updated_at)),
		h("span.does", h("a.button", { href: told[2], label: `${told[1]} ${brief(run.id, 80)}` }, told[1])),
	);
}

function about(kind, run) {
	if (kind === "cut_off") return `its process died; ${run.calls.steps} steps are kept`;
	if (kind === "in_doubt") return `${run.agent}; ${brief(run.now, 90).replace(/^.*\((.*)\)$/, (_, cause) => CAUSES[cause] ?? cause)}`;
	if (kind === "blocked") return /mismatch/.test(run.now) ? "its code does not fit its journal" : "it goes on once that is mended";
	return brief(run.now.replace(`Run ${run.id}: `, ""), 140);
}

function asked(page, question) {
	const isYesNo = question.kind === "yesno";
	const word = isYesNo || page.shell.whyNot ? "Look" : "Fill in…";
	const answer = async (value) => {
		if (!mayAct(page.shell)) return;
		try {
			await post(`/questions${at(question.id)}/answer`, { value, shown: question.shown });
			say(`“${brief(question.prompt, 80)}”: ${value ? "yes" : "no"}.`);
		} catch (problem) {
			say(`${problem.title}. ${problem.message}`, "bad");
		}
		page.shell.overview.again();
	};
	return h("li", { key: question.id, row: true },
		chip("asks"),
		h("div.what", h("strong", h("a", { href: to("questions", question.id) }, brief(question.prompt, 160))), h("span", h("span.mono", brief(question.run_id, 60)), quiet(` · ${question.agent}${question.due_at ? ` · expires ${relative(question.due_at)}` : ""}`))),
		h("span.quiet.age", when(question.asked_at)),
		h("span.does",
			isYesNo && !page.shell.whyNot
				? [["Yes", true], ["No", false]].map(([word, value]) => h("button.button", { key: word, label: `${word}: ${brief(question.prompt, 80)}`, click: () => answer(value) }, word))
				: h("a.button", { href: to("questions", question.id), label: `${word} ${brief(question.prompt, 80)}` }, word),
		),
	);
}

function happening(runs) {
	return card(
		"Happening now",
		h("a", { href: to("runs", { view: "unfinished" }) }, "all"),
		runs.length
			? h("ul.lines", runs.map((run) => h("li", { key: run.id }, chip(standing(run)), runLink(run.id, 40, ".cut"), run.progress?.total ? meter(run.progress.done, run.progress.total, `${amount(run.progress.done)} of ${amount(run.progress.total)}`) : h("span.quiet.cut", run.status === "queued" ? `in line for ${run.queue}` : brief(run.now, 60)))))
			: h("p.nothing", "Nothing runs."),
	);
}

function working(workers) {
	const alive = workers.filter((each) => each.alive).length;
	return card(
		"Workers",
		h("a", { href: to("workers") }, `${alive} alive`),
		workers.length
			? h("ul.lines", workers.slice(0, 6).map((each) => h("li", { key: each.id }, each.alive ? chip("running", "alive") : chip("cancelled", "dead"), h("span.mono.cut", brief(each.id, 12)), h("span.quiet.cut", `${brief(each.host, 30)}, pid ${each.pid}`), h("span.quiet.end", `${each.runs} ${each.runs === 1 ? "run" : "runs"}`))))
			: h("div.nothing", h("p", "No worker. Runs that are queued wait for one."), commandLine("holdfast worker agent.py")),
	);
}

function coming(fires) {
	if (!fires.length) return null;
	return card("Next on schedule", h("a", { href: to("schedules") }, "all"), h("ul.lines", fires.slice(0, 5).map((each) => h("li", { key: each.schedule }, icon("calendar"), h("strong.cut", brief(each.schedule, 40)), h("span.quiet.end", when(each.at))))));
}

export function nothingYet() {
	return emptyCard("runs", "No runs yet", "A run appears here as soon as an agent starts.", h("div.commands", commandLine("holdfast demo --console"), commandLine("holdfast run agent.py:research tides"), commandLine("holdfast worker agent.py")));
}
