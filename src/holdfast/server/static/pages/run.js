// A run: how it stands, what became of it at each outage, its calls, and what can be done.

import { amount, at, banner, brief, button, cancelRun, clock, command, commandLine, copy, count, empty, emptyCard, FINAL, get, go, h, icon, iconButton, length, link, money, openDialog, pauseRun, post, quiet, relative, resumeRun, retryRun, runLink, say, shown, skeleton, standing, statusOf, tabs, to, trouble, valueView, when } from "../kit.js";
import { Timeline, verdictText } from "../timeline/timeline.js";
import { forkDialog } from "./forking.js";
import { activity } from "./run_activity.js";
import { inspector } from "./run_call.js";
import { Journal } from "./run_journal.js";
import { kept } from "./run_kept.js";

export function run(page) {
	const id = page.parts[1];
	const path = `/runs${at(id)}`;
	const isMine = (data) => data.id === id;
	page.follow(`run:${id}`);
	const reading = page.read(path, null, ["run", "progress"], isMine);
	page.on("question", () => reading.again());
	const story = { lines: null, head: 0 };
	const acts = { items: null };
	const state = { verified: null, isVerifying: false, call: page.params.get("call"), calls: "", problem: null, isFirst: true };
	const timeline = new Timeline((key, row) => choose(key, row));
	const journal = new Journal(path, page);
	const looking = inspector(page, path);
	const keeping = kept(page, path, timeline.calls.names);
	page.ending(() => (timeline.close(), journal.close()));

	// calls: all of them once, then what changed

	let shownAt = "";
	const markOf = (run) => `${run.status} ${run.is_cut_off} ${run.epoch} ${run.records}`;
	let isReading = false;
	let isAgain = false;
	const readCalls = async (after) => {
		if (isReading) return void (isAgain = true);
		isReading = true;
		try {
			const columns = await get(`${path}/calls`, { after });
			state.problem = null;
			take(columns);
		} catch (problem) {
			state.problem = problem;
			page.update();
		}
		isReading = false;
		if (isAgain) {
			isAgain = false;
			readCalls(timeline.calls.head);
		}
	};
	const take = (columns) => {
		if (!reading.data) return void (state.waiting = columns);
		timeline.take(reading.data, columns);
		shownAt ||= markOf(reading.data);
		state.calls = "here";
		if (state.isFirst && !state.call && innerWidth > 1080) state.call = telling(timeline.calls.list)?.key ?? null;
		if (state.isFirst && state.call) {
			timeline.reveal(state.call);
			looking.open(state.call);
		}
		state.isFirst = false;
		page.update();
	};
	page.on("calls", (columns) => {
		if (columns.id !== id || isReading) return;
		if (columns.after <= timeline.calls.head && timeline.calls.head) take(columns);
		else readCalls(timeline.calls.head);
	});
	page.on("back", () => readCalls(timeline.calls.head));
	page.on("resync", () => readCalls(0));
	readCalls(0);
	const drawn = () => {
		if (!reading.data) return;
		if (state.waiting) {
			const columns = state.waiting;
			state.waiting = null;
			return take(columns);
		}
		const mark = markOf(reading.data);
		if (state.calls && mark !== shownAt) {
			if (shownAt && reading.data.records > timeline.calls.head) readCalls(timeline.calls.head);
			timeline.take(reading.data, null);
		}
		if (!state.calls && state.problem && !isReading) {
			state.problem = null;
			readCalls(0);
		}
		shownAt = mark;
		if (tab() === "story" && story.head !== reading.data.records) tell();
		if (tab() === "activity" && acts.head !== reading.data.records) look();
		if (tab() === "timeline") timeline.schedule();
		keeping.sync(reading.data, tab());
		journal.sync(reading.data.records, tab() === "journal");
		looking.sync(reading.data);
	};
	const tell = async () => {
		story.head = reading.data.records;
		const found = await get(`${path}/story`).catch(() => null);
		story.lines = found?.lines ?? story.lines ?? [];
		page.update();
	};
	const look = async () => {
		acts.head = reading.data.records;
		const found = await get("/activity", { run: id }).catch(() => null);
		acts.items = found?.items ?? null;
		page.update();
	};
	const choose = (key, row) => {
		if (row) return void looking.open(row.call.key, `/runs${at(childOf(row))}`);
		state.call = key;
		looking.open(key);
		page.param({ call: key });
	};
	const childOf = (row) => row.id.slice(0, row.id.lastIndexOf(">")).split(">").at(-1);
	if (state.call) looking.open(state.call);

	const tab = () => page.params.get("tab") || "timeline";
	const setTab = (name) => (keeping.opened(name), page.param({ tab: name === "timeline" ? null : name }));
	const tabNames = () => available(reading.data, timeline, keeping).map(([name]) => name);
	const moveTab = (step) => {
		const names = tabNames();
		setTab(names[(names.indexOf(tab()) + step + names.length) % names.length]);
	};
	const after = (told) => (reading.again(), told);
	const data = () => reading.data;
	const fork = () => (data().status === "quarantined" ? say("It is quarantined: what is stored of it cannot be trusted.", "bad") : forkDialog(page.shell, data(), { turns: keeping.turns }));
	const main = () => primary(page, data(), after);
	const onTimeline = (act) => () => (tab() === "timeline" ? act() : null);
	Object.assign(page.keys, {
		a: () => main()?.act(),
		p: () => data() && !FINAL.includes(data().status) && pauseRun(page.shell, data(), after),
		r: () => data() && (["failed", "cancelled"].includes(data().status) ? retryRun : resumeRun)(page.shell, data(), after),
		c: () => data() && !FINAL.includes(data().status) && cancelRun(page.shell, data(), after),
		f: () => data() && fork(),
		"[": () => moveTab(-1),
		"]": () => moveTab(1),
		j: onTimeline(() => timeline.move(1)),
		k: onTimeline(() => timeline.move(-1)),
		n: onTimeline(() => timeline.toTrouble(1)),
		N: onTimeline(() => timeline.toTrouble(-1)),
		z: onTimeline(() => timeline.fit()),
		"+": onTimeline(() => timeline.zoom(0.5)),
		"-": onTimeline(() => timeline.zoom(2)),
		y: () => copy(command("show", id), "Command copied."),
		Escape: () => (looking.close(), (state.call = null), page.param({ call: null })),
	});
	const verify = async () => {
		state.isVerifying = true;
		page.update();
		try {
			state.verified = await post(`${path}/verify`);
			say(state.verified.is_ok ? `All ${state.verified.records} records fit their chain.` : state.verified.problem, state.verified.is_ok ? "" : "bad");
		} catch (problem) {
			say(problem.message, "bad");
		}
		state.isVerifying = false;
		reading.again();
		page.update();
	};

	const draw = (found) => [
		header(page, found, main(), after, state, verify, fork),
		stuck(page, found),
		receipts(found),
		h("div.card.body",
			tabs("Parts of the run", available(found, timeline, keeping), tab(), setTab),
			h("div", { class: `panel panel-${tab()}`, role: "tabpanel", "aria-labelledby": `tab-${tab()}` }, h("h2.unseen", available(found, timeline, keeping).find(([name]) => name === tab())?.[1] ?? "Timeline"), panel(page, found, { tab: tab(), timeline, journal, story, acts, state, looking, keeping, path })),
		),
	];
	return { title: () => id, crumbs: () => [["Runs", to("runs")], [id, ""]], draw: () => (reading.problem && !reading.data ? [gone(id, reading)] : shown(reading, draw)), drawn };
}

/** The call that says most of how the run stands. */
function telling(calls) {
	const last = (fits) => calls.findLast(fits);
	return last((call) => call.status === "in doubt" || call.status === "cut off") ?? last((call) => call.status === "failed") ?? last((call) => call.extra?.doubt) ?? last((call) => call.ended === null) ?? last((call) => call.kind === "effect") ?? calls.at(-1);
}

function gone(id, reading) {
	const { problem } = reading;
	if (problem.status === 404) return [h("h1", brief(id, 120)), emptyCard("search", `There is no run ${brief(id, 80)} yet`, "It appears here as soon as it is started. It may also be in another store, or its id may be longer: the search finds runs by how their ids begin.", button("To the runs", () => go(to("runs"))))];
	const told = problem.status === 410 ? emptyCard("info", problem.title, problem.message) : trouble(problem, () => reading.again());
	return [h("h1", brief(id, 120)), told];
}

function header(page, run, main, after, state, verify, fork) {
	const { shell } = page;
	const isOver = FINAL.includes(run.status);
	const why = shell.whyNot;
	const off = { isOff: Boolean(why), title: why };
	return h("header.run-head",
		h("div.title",
			h("h1", brief(run.agent, 80)),
			h("span.mono.quiet.cut", brief(run.id, 120)),
			iconButton("copy", "Copy the token", () => copy(run.token, "Token copied."), { kind: "on-wide" }),
			statusOf(run),
			h("div.actions",
				main && button(main.word, main.act, { kind: "primary", glyph: main.glyph, ...off }),
				!isOver && run.status !== "paused" && run.status !== "quarantined" ? button("Pause", () => pauseRun(shell, run, after), { glyph: "paused", ...off }) : null,
				!isOver && run.status !== "quarantined" ? button("Cancel…", () => cancelRun(shell, run, after), { kind: "on-wide", glyph: "stop", ...off }) : null,
				run.status !== "quarantined" ? button("Fork…", fork, { kind: "on-wide", glyph: "fork", ...off }) : null,
				iconButton("more", "More", () => moreOf(page, run, verify, fork), { kind: "button" }),
			),
		),
		nowText(run) && h("p.now-line", nowText(run)),
		run.progress?.total && run.status === "running" ? h("p.progress", h("span.meter", h("i", { style: { width: `${(100 * run.progress.done) / run.progress.total}%` } })), `${amount(run.progress.done)} of ${amount(run.progress.total)}${run.progress.note ? `, ${brief(run.progress.note, 80)}` : ""}`) : null,
		h("ul.run-facts",
			h("li", "started ", h("b", when(run.created_at))),
			h("li", h("b", count(run.calls.steps, "step"), ", ", count(run.calls.effects, "effect"))),
			run.usage.cost || run.usage.input_tokens ? h("li", h("b", money(run.usage.cost)), run.usage.cost ? ", " : "", `${amount(run.usage.input_tokens)} → ${amount(run.usage.output_tokens)} tokens`) : null,
			h("li", "thread ", h("a", { href: to("threads", run.thread_id) }, brief(run.thread_id, 40))),
			run.parent_id ? h("li", "child of ", runLink(run.parent_id, 40)) : null,
			run.forked_from ? h("li", "forked from ", runLink(run.forked_from.run, 40), ` at record ${run.forked_from.at} (`, h("a", { href: to("compare", { a: run.forked_from.run, b: run.id }) }, "compare"), ")") : null,
			run.queue !== "default" ? h("li", "queue ", h("a", { href: to("queues") }, brief(run.queue, 40))) : null,
			run.code.digest ? h("li", "code ", h("span.mono", run.code.digest.slice(0, 8)), run.code.version ? `, version ${brief(run.code.version, 20)}` : "") : null,
			Object.entries(run.tags).slice(0, 6).map(([name, value]) => h("li", { key: `tag ${name}` }, h("span.token", `${brief(name, 30)}=${brief(value, 40)}`))),
			h("li.verified", verification(run, state, verify)),
		),
	);
}

function verification(run, state, verify) {
	if (state.isVerifying) return quiet("verifying…");
	if (run.status === "quarantined" || !run.is_sound || (state.verified && !state.verified.is_ok)) return h("button.check.bad", { click: verify }, icon("quarantined"), "damaged");
	if (state.verified) return h("button.check.good", { title: `checked at ${clock(state.verified.at)}; check again`, click: verify }, icon("shield"), `verified ${state.verified.records}/${run.records}`);
	return h("button.check", { title: "Read every stored byte, and compare it with the chain", click: verify }, icon("shield"), "verify");
}

function nowText(run) {
	const question = run.questions[0];
	if (standing(run) === "asks" && question) return [h("strong", brief(question.prompt, 300)), question.due_at ? quiet(` expires ${relative(question.due_at)}`) : null];
	if (run.is_cut_off || ["quarantined", "failed", "blocked"].includes(run.status)) return null; // a banner tells it
	const text = brief(run.now, 300);
	return text && text !== run.status ? h("strong", text) : null;
}

function primary(page, run, after) {
	if (!run) return null;
	const { shell } = page;
	if (run.status === "quarantined") return null;
	if (run.questions.length && standing(run) === "asks") return { word: "Answer…", glyph: "ask", act: () => go(to("questions", run.questions[0].id)) };
	if (run.status === "in_doubt") return { word: "Settle…", glyph: "doubt", act: () => go(to("in-doubt", { run: run.id })) };
	if (run.status === "failed" || run.status === "cancelled") return { word: "Retry…", glyph: "back", act: () => retryRun(shell, run, after) };
	if (run.status === "blocked" || run.status === "paused") return { word: "Resume…", glyph: "play", act: () => resumeRun(shell, run, after) };
	return null;
}

function moreOf(page, run, verify, fork) {
	openDialog(brief(run.id, 60), "more", (update, close) => [
		h("div.menu",
			!page.shell.whyNot && !FINAL.includes(run.status) ? button("Cancel…", () => (close(), page.keys.c()), { glyph: "stop" }) : null,
			button("Fork…", () => (close(), fork()), { glyph: "fork" }),
			button("Verify every byte", () => (close(), verify()), { glyph: "shield" }),
			button("Copy the token", () => (close(), copy(run.token, "Token copied.")), { glyph: "copy" }),
			h("a.button", { href: to("compare", { a: run.id }), click: close }, icon("fork"), "Compare with another run"),
			run.children.length || run.parent_id ? h("a.button", { href: to("runs", { q: `parent:${run.parent_id ?? run.id}` }), click: close }, icon("child"), "Runs of this family") : null,
		),
		commandLine(command("show", run.id)),
		commandLine(command("watch", run.id)),
		h("footer", button("Close", close)),
	]);
}

function stuck(page, run) {
	const reason = run.reason ?? {};
	if (run.status === "quarantined") return banner("bad", "quarantined", "Stored data is damaged.", [brief(reason.problem ?? reason.detail ?? run.now, 500), " Nothing of it is executed. What is before the damage can still be read."], commandLine(command("verify", run.id)));
	if (run.status === "blocked") return blocked(run, reason);
	if (run.is_cut_off) {
		const alive = page.shell.overview.data?.workers.filter((each) => each.alive) ?? [];
		const knows = alive.some((each) => !each.agents?.length || each.agents.includes(run.agent));
		return banner("warn", "cut_off", "Its process died.", `Everything up to record ${run.records} is kept. ${knows ? "A worker that knows the agent takes it over within a minute; if none does, go on here." : `No worker that is alive knows the agent ${brief(run.agent, 60)}: start one, or go on here.`}`, commandLine(command("resume", run.id, "FILE")));
	}
	if (run.status === "failed") return banner("bad", "failed", "Failed.", brief(run.now, 600));
	return null;
}

function blocked(run, reason) {
	const parts = [];
	if (reason.asked) parts.push(`The code asks for ${brief(reason.asked, 200)}${reason.where ? ` (${brief(reason.where, 200)})` : ""}`);
	const left = Array.isArray(reason.recorded) ? reason.recorded : [];
	if (left.length) parts.push(`the journal has ${left.slice(0, 8).map((each) => brief(each?.key ?? each, 60)).join(", ")}`);
	const text = parts.length ? `${parts.join(", ")}.` : brief(reason.detail ?? run.now, 500);
	const open = left.find((each) => each?.open);
	const isMismatch = reason.why === "replay mismatch";
	const advice = isMismatch ? `Guard the new code with \`if hf.patched("some-id"):\`, or restore the call${open ? `, or settle ${brief(open.key, 60)}` : ""}; then resume it.` : "Mend what it says, then resume it.";
	return banner("bad", "blocked", `Blocked: ${brief(String(reason.why ?? "").replaceAll("_", " ") || "it needs a fix", 80)}.`, [text, h("p.quiet", reason.executed ? "" : "Nothing was executed. ", advice)], commandLine(command("resume", run.id, "FILE")));
}

/** One line for each time that it went on after an outage, or that something outside had changed meanwhile. */
function receipts(run) {
	const told = run.receipts.filter((each) => each.lost || each.gap.length);
	if (!told.length) return null;
	const last = told.slice(-6);
	return h("ul.receipts.card", { label: "Receipts" }, told.length > last.length ? h("li", icon("back"), quiet(`${told.length - last.length} before these`)) : null, last.map(receipt));
}

function receipt(each) {
	const tokens = each.saved_input_tokens + each.saved_output_tokens;
	const doubts = each.in_doubt.map((doubt) => verdictText({ verdict: doubt.verdict ?? "open" })).join(", ");
	const gap = each.gap.map((change) => brief(change.text, 300));
	if (gap.length) gap.push(each.accepted_by ? `accepted by ${brief(each.accepted_by, 60)}` : each.blocked ? "the run was blocked for it" : "it went on");
	return h("li", { key: each.at },
		icon(each.lost ? "back" : "sleeping"),
		h("b.num", clock(each.at)),
		h("span.grow", `${each.lost ? "down" : "woke after"} ${length(each.down_s)}, then ${count(each.replayed, "call")} from the journal, ${amount(each.executed)} executed`, doubts ? `, ${each.in_doubt.length} in doubt → ${doubts}` : "", doubts && each.in_doubt[0].by ? `, says ${brief(each.in_doubt[0].by, 40)}` : "", each.code_changed ? ", with other code" : ""),
		h("span.saved", ["saved ", [length(each.saved_s), tokens ? `${amount(tokens)} tokens` : "", money(each.saved_cost)].filter(Boolean).join(" · ")]),
		gap.length ? h("p", h("strong", "Changed outside: "), gap.join("; ")) : null,
	);
}

function available(run, timeline, keeping) {
	return [
		["timeline", "Timeline"],
		["story", "Story"],
		["journal", "Journal", run ? amount(run.records) : null],
		...keeping.tabs(),
		run?.children.length ? ["children", "Children", run.children.length] : null,
		["activity", "Activity", timeline.calls.claims.length || null],
		["values", "Input and result"],
	].filter(Boolean);
}

function panel(page, run, { tab, timeline, journal, story, acts, state, looking, keeping, path }) {
	switch (tab) {
		case "story":
			return story.lines ? (story.lines.length ? h("ol.story", story.lines.map((line, n) => h("li", { key: String(n) }, icon(glyphOf(line)), h("span", brief(line, 1000))))) : empty("info", "No story yet", "It is told once something has happened.")) : skeleton(5);
		case "journal":
			return h("div", { key: "journal", mount: journal.root });
		case "activity":
			return activity(run, timeline.calls.claims, acts.items);
		case "children":
			return h("ul.lines", run.children.map((child) => h("li", { key: child.id }, statusOf(child), runLink(child.id, 100, ".cut"), quiet(brief(child.agent, 60)))));
		case "values":
			return h("div.values",
				valueView("Input", run.input, { where: link(`${path}/payload`, { seq: run.input?.seq, part: run.input?.part }), isLong: true }) ?? h("p.nothing", "The input is not shown to your role."),
				run.result ? valueView("Result", run.result, { where: link(`${path}/payload`, { seq: run.result.seq, part: run.result.part }), isLong: true }) : h("p.nothing", FINAL.includes(run.status) ? "It left no result." : "It has no result yet."),
			);
		case "state":
		case "artifacts":
		case "streams":
		case "plan":
		case "messages":
			return keeping.draw(tab, run);
		default:
			return h("div", { class: `with-inspector${looking.key ? " is-open" : ""}` },
				h("div.timeline-side", state.problem ? trouble(state.problem) : null, state.calls ? (timeline.calls.list.length ? null : empty("queued", "No calls yet", run.status === "queued" ? `It is in line for ${run.queue}.` : "They appear here as they are made.")) : skeleton(6), h("div", { key: "timeline", mount: timeline.root })),
				looking.draw(run),
			);
	}
}

function glyphOf(line) {
	if (/lost|cut off|killed/.test(line)) return "cut_off";
	if (/in doubt/.test(line)) return "in_doubt";
	if (/fail|error/i.test(line)) return "failed";
	if (/wait|asks|sleep/.test(line)) return "sleeping";
	if (/^Now it is done|ended/.test(line)) return "done";
	return "step";
}
