// Threads: the runs of one, what was said in it and what people decided, as a conversation.

import { amount, at, brief, button, count, emptyCard, FINAL, get, h, head, link, money, segments, shown, statusOf, table, to, trouble, when } from "../kit.js";
import { bubble, messageBubble, Messages, wordsOf } from "../talk.js";

const LOOK_MS = 4000;

export function threads(page) {
	return page.parts[1] ? one(page, page.parts[1]) : all(page);
}

/** The threads of the newest runs, and those in which something was said. */
function all(page) {
	const reading = page.read("/runs", { limit: 200 }, ["run"]);
	const said = page.read("/threads", { limit: 200 }, ["run"]);
	const draw = (data) => {
		const found = new Map();
		const known = (id) => found.get(id) ?? found.set(id, { id, runs: 0, messages: 0, cost: 0, last: null, at: "" }).get(id);
		for (const each of said.data?.items ?? []) Object.assign(known(each.id), { messages: each.last, at: each.updated_at });
		for (const run of data.items) {
			if (run.parent_id) continue;
			const each = known(run.thread_id);
			Object.assign(each, { runs: each.runs + 1, cost: each.cost + run.usage.cost, last: each.last ?? run, at: run.updated_at > each.at ? run.updated_at : each.at });
		}
		const items = [...found.values()].sort((a, b) => (a.at < b.at ? 1 : -1));
		const talks = items.filter((each) => each.messages || each.runs > 1);
		const view = page.params.get("show") ?? (talks.length ? "talks" : "all");
		if (!items.length) return emptyCard("thread", "No threads yet", "Runs that share a thread_id are one conversation.");
		return [
			h("div.row", segments("Show", [["talks", "Conversations", talks.length], ["all", "All", items.length]], view, (show) => page.param({ show }))),
			table(
				"Threads",
				["Thread", { name: "Messages", kind: "num" }, { name: "Runs", kind: "num" }, "Last run", "Status", { name: "Cost", kind: "num" }, { name: "Changed", kind: "num" }],
				(view === "talks" ? talks : items).slice(0, 200).map((each) => ({ key: each.id, cells: [h("a.mono.cut", { href: to("threads", each.id) }, brief(each.id, 80)), each.messages ? amount(each.messages) : "", each.runs ? amount(each.runs) : "", each.last && h("span.cut.mono", brief(each.last.id, 60)), each.last && statusOf(each.last), money(each.cost), when(each.at)] })),
			),
		];
	};
	return { title: () => "Threads", draw: () => [head("Threads", "Those of the newest 200 runs, and those in which something was said."), shown(reading, draw)] };
}

function one(page, id) {
	const reading = page.read("/runs", { thread: id, limit: 50 }, ["run"], (run) => run.thread_id === id);
	const messages = new Messages(id, () => page.update());
	const details = new Map();
	const answers = new Map();
	page.every(LOOK_MS, () => document.hidden || messages.sync());
	page.on("question", () => reading.again());
	messages.sync();

	/** A run with its questions, read again when something was recorded. */
	const know = (run) => {
		const known = details.get(run.id);
		if (known?.records !== run.records) {
			details.set(run.id, { ...known, records: run.records });
			Promise.all([get(`/runs${at(run.id)}`), get("/questions", { run: run.id, state: "all", limit: 20 })]).then(([data, asked]) => {
				details.set(run.id, { records: run.records, data, questions: asked.items });
				for (const each of asked.items) if (each.state === "answered" && !answers.has(each.id)) answered(run, each);
				page.update();
			}, () => {});
			if (known) messages.sync();
		}
		return details.get(run.id);
	};
	const answered = (run, question) => {
		answers.set(question.id, null);
		get(`/runs${at(run.id)}/calls${at(question.key)}`).then((call) => (answers.set(question.id, call.result), page.update()), () => answers.delete(question.id));
	};

	const draw = (data) => {
		const runs = data.items.filter((run) => !run.parent_id).reverse();
		if (!runs.length && !messages.items.length) return emptyCard("thread", "Nothing is known of this thread", "It appears here once a run is started in it, or something is said.");
		const ids = new Set(runs.map((run) => run.id));
		const events = runs.flatMap((run) => told(run, know(run), messages.items, answers));
		for (const message of messages.items) events.push({ at: message.at, rank: 2, draw: () => messageBubble(message, ids) });
		events.sort((a, b) => (a.at === b.at ? a.rank - b.rank : a.at < b.at ? -1 : 1));
		return [
			messages.problem && trouble(messages.problem),
			data.next ? h("p.quiet", "These are its newest 50 runs.") : null,
			messages.first > 1 ? h("div.row", button(`Show ${count(messages.first - 1, "message")} before these`, () => messages.earlier().catch((problem) => ((messages.problem = problem), page.update())))) : null,
			h("ol.conversation", { label: "Conversation" }, events.map((each) => each.draw())),
		];
	};
	const about = () => [messages.last ? count(messages.last, "message") : null, reading.data ? count(reading.data.items.filter((run) => !run.parent_id).length, "run") : null].filter(Boolean).join(", ");
	return { title: () => id, crumbs: () => [["Threads", to("threads")], [id, ""]], draw: () => [head(brief(id, 80), about(), h("a.button", { href: to("runs", { q: `thread:${/\s/.test(id) ? `"${id}"` : id}` }) }, "Its runs")), shown(reading, draw)] };
}

/** What a run has to do with the conversation. What it was given and what came of it are not told twice if it said so. */
function told(run, known, messages, answers) {
	const href = to("runs", run.id);
	const said = new Set(messages.filter((each) => each.author === run.id && each.json).map((each) => wordsOf(each.json)?.text));
	const isSaid = (value) => value?.json && said.has(wordsOf(value.json)?.text);
	const events = [{ at: run.created_at, rank: 0, draw: () => h("li", { key: `r ${run.id}`, class: "begins", row: true }, statusOf(run), h("h2", brief(run.agent, 60)), h("a.mono.cut", { href }, brief(run.id, 80)), h("span.quiet", when(run.created_at))) }];
	const data = known?.data;
	if (!data) return events;
	const whole = (value) => link(`/runs${at(run.id)}/payload`, { seq: value?.seq, part: value?.part });
	if (!isSaid(data.input)) events.push({ at: run.created_at, rank: 1, draw: () => bubble({ key: `i ${run.id}`, side: "in", who: run.agent, at: run.created_at, label: "was given", value: data.input, where: whole(data.input), extra: data.input ? null : h("p.quiet", "It is not shown to your role.") }) });
	for (const question of known.questions ?? []) {
		const isOpen = question.state === "open";
		events.push({ at: question.asked_at, rank: 2, draw: () => bubble({ key: `q ${question.id}`, side: isOpen ? "out.asks" : "out", who: run.agent, at: question.asked_at, label: "asks", href, extra: [h("p.prose", brief(question.prompt, 2000)), isOpen ? h("a.button.primary", { href: to("questions", question.id) }, "Answer…") : null] }) });
		if (!isOpen && question.decided_at) events.push({ at: question.decided_at, rank: 2, draw: () => bubble({ key: `a ${question.id}`, side: "in", who: question.decided_by ?? "somebody", at: question.decided_at, label: question.state, value: answers.get(question.id), extra: question.note ? h("p.quiet", brief(question.note, 500)) : null }) });
	}
	if (!FINAL.includes(run.status)) return events;
	if (data.result && run.status === "done" && !isSaid(data.result)) events.push({ at: run.updated_at, rank: 3, draw: () => bubble({ key: `o ${run.id}`, side: "out", who: run.agent, at: run.updated_at, label: "result", href, value: data.result, where: whole(data.result) }) });
	if (run.status !== "done") events.push({ at: run.updated_at, rank: 3, draw: () => bubble({ key: `o ${run.id}`, side: "out.failed", who: run.agent, at: run.updated_at, label: run.status, href, extra: h("p", brief(run.now, 500)) }) });
	return events;
}
