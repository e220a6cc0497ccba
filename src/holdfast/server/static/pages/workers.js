// Workers: who executes, how that is known, and which runs wait for one.

import { amount, banner, brief, chip, commandLine, count, emptyCard, h, head, shown, table, to, when } from "../kit.js";
import { queueTable } from "./queues.js";

export function workers(page) {
	const reading = page.read("/workers", null, ["workers", "run"]);
	const queueReading = page.read("/queues", null, ["run"]);
	const lost = page.read("/runs", { cut_off: true, limit: 20 }, ["run", "workers"]);
	page.every(5000, () => reading.again());
	const draw = (data) => {
		const alive = data.items.filter((each) => each.alive);
		const waiting = lost.data?.items ?? [];
		const knows = (agent) => alive.some((each) => !each.agents?.length || each.agents.includes(agent));
		const unknown = waiting.filter((run) => !knows(run.agent));
		return [
			waiting.length
				? banner("warn", "cut_off", unknown.length ? `${count(unknown.length, "run waits", "runs wait")} for a worker that knows ${unknown.length === 1 ? "its" : "their"} agent.` : `${count(waiting.length, "run was", "runs were")} cut off and nobody has ${waiting.length === 1 ? "it" : "them"} yet.`, (unknown.length ? unknown : waiting).slice(0, 8).map((run) => [h("a.mono", { key: run.id, href: to("runs", run.id) }, brief(run.id, 60)), ` (${brief(run.agent, 40)}) `]))
				: null,
			data.items.length
				? table(
						"Workers",
						["State", "Worker", "Where", "Holdfast", "Agents", { name: "Runs", kind: "num" }, "Started", "How it is known"],
						data.items.map((each) => ({
							key: each.id,
							cells: [each.alive ? chip("running", "alive") : chip("cut_off", "dead"), h("span.mono.cut", brief(each.id, 40)), `${brief(each.host, 60)}, pid ${each.pid}`, each.holdfast ? brief(each.holdfast, 20) : "–", each.agents?.length ? (each.agents.length > 3 ? `${each.agents.length} agents` : each.agents.map((name) => brief(name, 30)).join(", ")) : "–", amount(each.runs), when(each.started_at), each.alive ? "its lock is held" : { lock: "its lock is free", lease: "its lease ran out" }[each.proof] ?? brief(each.proof ?? "its lease ran out", 60)],
						})),
					)
				: emptyCard("worker", "No worker", "Runs that are queued wait until one starts.", commandLine("holdfast worker agent.py")),
			h("h2.part", "Queues"),
			shown(queueReading, (found) => queueTable(page, queueReading, found), { rows: 2 }),
		];
	};
	return {
		title: () => "Workers",
		draw: () => {
			const items = reading.data?.items ?? [];
			const alive = items.filter((each) => each.alive).length;
			return [head("Workers", reading.data ? `${alive} alive${items.length - alive ? `, ${items.length - alive} dead with runs left` : ""}` : null), shown(reading, draw)];
		},
	};
}
