// Schedules: when they start runs, each in its own time zone.

import { askAct, at, brief, button, chip, command, commandLine, day, emptyCard, go, h, head, mayAct, noted, post, quiet, relative, shown, table, to, turnButton, when } from "../kit.js";

const MISSED = { latest: "fires once", skip: "skips" };
const OVERLAP = { skip: "skips", allow: "runs both", replace: "replaces it" };

const TURNED = { resume: "It starts runs again from its next time on.", pause: "It starts nothing until it is resumed; runs under way go on." };

export function schedules(page) {
	const reading = page.read("/schedules", null, ["run"]);
	page.every(20_000, () => reading.again());
	const draw = (data) => {
		if (!data.items.length) return emptyCard("calendar", "No schedules", "app.schedule(name, call, cron=…) makes one; a worker fires it.", commandLine("holdfast schedules"));
		const items = [...data.items].sort((a, b) => a.paused - b.paused || (a.next_fires[0] ?? "9").localeCompare(b.next_fires[0] ?? "9"));
		return table("Schedules", ["State", "Name", "When", "Agent", "Next", "Last", "Rules", { name: "", kind: "acts" }], items.map((each) => row(page, each, reading)));
	};
	return { title: () => "Schedules", draw: () => [head("Schedules", "Each in its own time zone."), shown(reading, draw)] };
}

function row(page, each, reading) {
	const off = { isOff: Boolean(page.shell.whyNot), title: page.shell.whyNot, kind: "small" };
	const [next, ...later] = each.next_fires;
	const path = `/schedules${at(each.name)}`;
	const run = () =>
		mayAct(page.shell) &&
		askAct({ title: `Run ${brief(each.name, 60)}?`, glyph: "play", text: "A run of it starts now, beside those of its times.", confirm: "Run it now", command: ({ note }) => command("schedules", "run", each.name, noted(note)), act: ({ note }) => post(`${path}/run`, { note }).then((made) => (go(to("runs", made.id)), made)), done: (made) => `started ${made.id}` });
	return {
		key: each.name,
		cells: [
			each.paused ? chip("paused") : chip("done", "on"),
			h("strong", brief(each.name, 80)),
			h("span.two", h("span", brief(each.explained, 120)), h("span.mono.quiet", `${brief(each.cron, 60)} ${brief(each.tz, 40)}`)),
			brief(each.agent, 60),
			each.paused ? quiet("not until it is resumed") : h("span.two", next ? when(next) : "never", quiet(later.slice(0, 2).map((time) => (new Date(time) - Date.now() < 3_600_000 ? relative(time) : day(time))).join(", "))),
			each.last_run ? h("a", { href: to("runs", each.last_run) }, when(each.last_at)) : quiet("never"),
			h("span.two", `missed: ${MISSED[each.missed] ?? `up to ${each.missed}`}`, quiet(`overlap: ${OVERLAP[each.overlap] ?? each.overlap}${each.skipped ? `, ${each.skipped} skipped` : ""}`)),
			h("span.row", button("Run now", run, off), turnButton(page, "schedules", each, TURNED, () => reading.again())),
		],
	};
}
