// What a run keeps and puts out: the states of its turns, its artifacts, its streams.

import { amount, banner, brief, button, changePlan, command, commandLine, FINAL, get, h, icon, meter, quiet, skeleton, to, trouble } from "../kit.js";
import { messageBubble, Messages } from "../talk.js";
import { artifacts } from "./run_artifacts.js";
import { states } from "./run_state.js";
import { streams } from "./run_streams.js";

export function kept(page, path, names) {
	const found = { head: -1, named: 0, problem: null, plan: null, talk: null };
	const [state, put, said] = [states(page, path), artifacts(page, path), streams(page, path)];
	const failed = (problem) => ((found.problem = problem), page.update());

	/** What there is, whenever something was recorded, or calls of other names have come. */
	const sync = (run, tab) => {
		const isMore = found.head !== run.records;
		if (!isMore && found.named === names.size) return;
		const isFirst = found.head < 0;
		Object.assign(found, { head: run.records, named: names.size });
		found.talk ??= new Messages(run.thread_id, () => page.update());
		const looks = names.has("hf:plan") ? [readPlan()] : [];
		if ([...names].some((name) => name.startsWith("hf.thread."))) found.talk.sync();
		if (isMore) looks.push(get(`${path}/streams`).then((told) => (said.names = told.items)), get(`${path}/state`).then(state.newest).catch(none));
		if (isMore && (isFirst || tab === "artifacts")) looks.push(put.read());
		Promise.all(looks).then(() => (tab === "streams" ? said.read() : null)).then(() => page.update(), failed);
	};
	const none = (problem) => {
		if (problem.status !== 404 && problem.status !== 403) throw problem;
	};

	const plan = () => {
		if (!found.plan) return skeleton(3);
		const { items, missed, pending } = found.plan;
		const done = items.filter((item) => item.done).length;
		const mayChange = !page.shell.whyNot && !FINAL.includes(found.run.status);
		const change = (item) => changePlan(page.shell, found.run, item, readPlan);
		return h("div.values",
			h("p.row.plan-head", meter(done, items.length), `${done} of ${items.length} done`, h("span.grow"), mayChange ? button("Add…", () => change(null)) : null),
			pending.length ? banner("info", "info", "Not taken yet:", `changes by ${brief([...new Set(pending)].join(", "), 200)}; the run has them with its next call of the plan.`) : null,
			h("ol.lines", { label: "Plan" }, items.map((item) => h("li", { key: item.id, row: true }, icon(item.done ? "done" : "queued", item.done ? "done" : "to do"), h("span.quiet.num", brief(item.id, 20)), h(item.done ? "span.quiet.grow" : "span.grow", brief(item.text, 2000), item.note ? quiet(` (${brief(item.note, 500)})`) : null), mayChange ? button("Change…", () => change(item), { kind: "small", title: `Change item ${item.id}` }) : null))),
			missed.length ? h("ul.inset", missed.map((each, n) => h("li.quiet", { key: String(n) }, `Changed nothing: ${brief(each, 300)}.`))) : null,
			h("div.inset", commandLine(command("plan", found.run.id))),
		);
	};
	const talk = () => h("div.inset", h("p", "What was said in the thread ", h("a", { href: to("threads", found.run.thread_id) }, brief(found.run.thread_id, 60))), h("ol.conversation", { label: "Messages" }, (found.talk?.items ?? []).map((each) => messageBubble(each))));
	const readPlan = () => get(`${path}/plan`).then((told) => ((found.plan = told), page.update()), none);

	return {
		get turns() {
			return state.turns;
		},
		sync,
		opened: (tab) => (tab === "streams" ? said.read().catch(failed) : tab === "artifacts" ? put.read().then(() => page.update(), failed) : null),
		tabs: () => [
			found.plan ? ["plan", "Plan", `${found.plan.items.filter((item) => item.done).length}/${found.plan.items.length}`] : null,
			found.talk?.items.length ? ["messages", "Messages", amount(found.talk.last)] : null,
			state.turns ? ["state", "State", amount(state.turns)] : null,
			["artifacts", "Artifacts", put.items ? amount(put.items.length) : null],
			said.names.length ? ["streams", "Streams", said.names.length] : null,
		],
		draw: (tab, run) => ((found.run = run), found.problem ? trouble(found.problem) : { state: () => state.draw(run, failed), artifacts: () => put.draw(run), streams: () => said.draw(run), plan, messages: talk }[tab]()),
	};
}
