// Queues: how many run at once, and who waits.

import { amount, brief, chip, commandLine, emptyCard, h, head, length, meter, relative, shown, table, to, turnButton } from "../kit.js";

const TURNED = { resume: "Runs that wait in it are taken again.", pause: "No more runs of it are taken; those under way go on until they wait or end." };

export function queueTable(page, reading, data) {
	if (!data.items.length) return emptyCard("queue", "No queue has limits", "app.queue(name, concurrency=…) gives one; runs without a queue are in “default”, which has none.", commandLine("holdfast queues set mail --concurrency 4"));
	return table(
		"Queues",
		["State", "Queue", "Running", { name: "Queued", kind: "num" }, { name: "At once", kind: "num" }, { name: "Per key", kind: "num" }, "Starts", { name: "", kind: "acts" }],
		data.items.map((each) => ({
			key: each.name,
			cells: [
				each.paused ? chip("paused") : each.held_until && new Date(each.held_until) > Date.now() ? chip("sleeping", `held, ${relative(each.held_until)}`) : chip("done", "open"),
				h("a", { href: to("runs", { q: `queue:${each.name}` }) }, h("strong", brief(each.name, 80))),
				h("span.row", each.concurrency ? meter(each.running, each.concurrency, `${each.running} of ${each.concurrency}`) : null, amount(each.running)),
				amount(each.queued),
				each.concurrency ?? "–",
				each.per_key ?? "–",
				each.rate ? `${each.rate[0]} in ${length(each.rate[1])}` : "–",
				turnButton(page, "queues", each, TURNED, () => reading.again()),
			],
		})),
	);
}

export function queues(page) {
	const reading = page.read("/queues", null, ["run"]);
	return { title: () => "Queues", draw: () => [head("Queues", "Limits hold for all workers together."), shown(reading, (data) => queueTable(page, reading, data))] };
}
