// Integrity: what the store promises, which runs are damaged, and checking all of it.

import { amount, at, banner, brief, button, card, clock, command, commandLine, empty, facts, get, h, head, icon, meter, post, runLink, shown, statusOf, to } from "../kit.js";

export function integrity(page) {
	const store = page.read("/store");
	const damaged = page.read("/runs", { status: "quarantined", limit: 100 }, ["run"]);
	const state = { done: 0, total: 0, records: 0, bad: [], isBusy: false, at: null, isStopped: false };
	page.ending(() => (state.isStopped = true));

	const verify = async () => {
		Object.assign(state, { done: 0, records: 0, bad: [], isBusy: true, isStopped: false });
		let cursor = null;
		const ids = [];
		do {
			const found = await get("/runs", { limit: 200, cursor }).catch(() => ({ items: [], next: null }));
			ids.push(...found.items.map((run) => run.id));
			cursor = found.next;
			state.total = ids.length;
			page.update();
		} while (cursor && ids.length < 2000 && !state.isStopped);
		for (const id of ids) {
			if (state.isStopped) break;
			try {
				const found = await post(`/runs${at(id)}/verify`);
				state.records += found.records;
				if (!found.is_ok) state.bad.push({ id, why: found.problem });
			} catch (problem) {
				if (problem.status === 401) break;
				state.bad.push({ id, why: problem.message });
			}
			state.done += 1;
			page.update();
		}
		Object.assign(state, { isBusy: false, at: new Date().toISOString() });
		damaged.again();
		page.update();
	};

	const about = (data) =>
		facts([
			["store", data.kind === "sqlite" ? "SQLite" : "PostgreSQL"],
			["durability", data.durability === "full" ? "full: what was acknowledged is on disk" : h("strong", `${data.durability}: less than full`)],
			["schema", String(data.schema)],
			["holdfast", data.holdfast],
			["trouble", data.trouble ? h("strong.bad", brief(data.trouble, 400)) : "none"],
		]);
	return {
		title: () => "Integrity",
		draw: () => [
			head("Integrity", "Every record is linked to the one before by its hash; every row carries a digest."),
			h("div.columns.even",
				card("Store", null, shown(store, about, { rows: 4 }), h("div.inset", commandLine("holdfast doctor"))),
				card(
					"Verify",
					state.at ? `checked at ${clock(state.at)}` : null,
					h("div.inset",
						state.isBusy ? h("p", meter(state.done, state.total), ` ${amount(state.done)} of ${amount(state.total)} runs, ${amount(state.records)} records `, button("Stop", () => (state.isStopped = true), { kind: "small" })) : state.at ? h("p", { class: state.bad.length ? "bad" : "good" }, icon(state.bad.length ? "quarantined" : "shield"), ` ${amount(state.done)} runs, ${amount(state.records)} records: ${state.bad.length ? `${state.bad.length} damaged` : "all fit"}.`) : h("p", "Reads every stored byte of the newest 2,000 runs and compares it with the chain."),
						state.bad.slice(0, 20).map((each) => h("p", { key: each.id }, runLink(each.id, 80), " ", brief(each.why, 300))),
						h("div.row", button(state.at ? "Verify again" : "Verify", verify, { kind: "primary", isOff: state.isBusy })),
						commandLine(command("verify", "--all")),
					),
				),
			),
			card("Damaged runs", damaged.data ? String(damaged.data.items.length) : null, shown(damaged, (data) => (data.items.length ? h("ul.lines", data.items.map((run) => h("li", { key: run.id }, statusOf(run), runLink(run.id, 80, ".cut"), h("span.quiet.cut", brief(run.now, 200))))) : empty("shield", "None is known", "A run whose stored data do not fit is quarantined when it is read, and listed here.")), { rows: 2 })),
			store.data?.trouble ? banner("bad", "quarantined", "The store has trouble.", brief(store.data.trouble, 500)) : null,
		],
	};
}
