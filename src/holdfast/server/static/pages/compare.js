// Two runs side by side: a run and its fork, or two of the same agent. What both did the same is quiet.

import { at, brief, count, emptyCard, get, h, head, length, money, quiet, runLink, segments, statusOf, table, to, trouble } from "../kit.js";
import { Calls } from "../timeline/calls.js";

export function compare(page) {
	const sides = { a: null, b: null };
	const load = async (side) => {
		const id = page.params.get(side);
		sides[side] = null;
		if (!id) return page.update();
		try {
			const [run, columns] = await Promise.all([get(`/runs${at(id)}`), get(`/runs${at(id)}/calls`)]);
			const calls = new Calls();
			calls.take(columns, new Date(run.created_at).getTime());
			sides[side] = { run, calls };
		} catch (problem) {
			sides[side] = { problem };
		}
		page.update();
	};
	load("a");
	load("b");
	const picker = (side, word) => h("label.field", h("span", word), h("input", { type: "text", class: "mono", spellcheck: "false", placeholder: "the id of a run", value: page.params.get(side) ?? "", on: { change: (event) => (page.param({ [side]: event.target.value.trim() }), load(side)) } }));
	const draw = () => {
		const { a, b } = sides;
		const broken = [a, b].filter((each) => each?.problem).map((each) => trouble(each.problem));
		if (broken.length || !a?.run || !b?.run) return broken.length ? broken : emptyCard("fork", "Choose two runs", "Their calls are laid side by side by their keys.");
		const keys = [...new Set([...a.calls.list, ...b.calls.list].map((call) => call.key))].slice(0, 2000);
		const cell = (call) => (call ? [h("span", { class: call.status === "failed" ? "bad" : null }, call.status), " ", quiet(call.took ? length(call.took / 1000) : "", " ", money(call.cost))] : quiet("–"));
		const changed = b.run.forked_from?.changed ?? a.run.forked_from?.changed ?? [];
		const [ofA, ofB] = [a.calls.byKey, b.calls.byKey];
		const differs = (key) => ofA.get(key)?.status !== ofB.get(key)?.status || changed.includes(key);
		const other = keys.filter(differs);
		const view = page.params.get("show") ?? "all";
		return [
			h("div.columns.even", [a, b].map(({ run }) => h("section.card", h("header.wrap", statusOf(run), runLink(run.id, 80), quiet(brief(run.agent, 60))), h("p.nothing", `${count(run.calls.steps, "step")}, ${count(run.calls.effects, "effect")}, ${money(run.usage.cost) || "no cost"}`, run.forked_from?.changed?.length ? h("strong", `Different from the start: ${brief(run.forked_from.changed.join(", "), 200)}.`) : null)))),
			h("div.row", segments("Show", [["all", "All calls", keys.length], ["other", "What differs", other.length]], view, (show) => page.param({ show }))),
			table("Calls", ["Call", brief(a.run.id, 40), brief(b.run.id, 40)], (view === "all" ? keys : other).map((key) => ({ key, kind: differs(key) ? "chosen" : null, cells: [h("span.mono.cut", brief(key, 120)), cell(ofA.get(key)), cell(ofB.get(key))] }))),
		];
	};
	return { title: () => "Compare", crumbs: () => [["Runs", to("runs")], ["compare", ""]], draw: () => [head("Compare two runs"), h("div.columns.even", picker("a", "One run"), picker("b", "Another")), draw()] };
}
