// Schedules: when they start runs, each in its own time zone.

import { at, post } from "../api.js";
import { mayAct } from "../acts.js";
import { brief, h } from "../dom.js";
import { go, to } from "../router.js";
import { askAct, button, chip, commandLine, empty, head, shown, table } from "../ui.js";
import { command, day, relative, when } from "../words.js";

const MISSED = { latest: "fires once", skip: "skips" };
const OVERLAP = { skip: "skips", allow: "runs both", replace: "replaces it" };

export function schedules(page) {
  const reading = page.read("/schedules", null, ["run"]);
  page.every(20_000, () => reading.again());
  const draw = (data) => {
    if (!data.items.length) return h("div", { class: "card" }, empty("calendar", "No schedules", "app.schedule(name, call, cron=…) makes one; a worker fires it.", commandLine("holdfast schedules")));
    const items = [...data.items].sort((a, b) => a.paused - b.paused || (a.next_fires[0] ?? "9").localeCompare(b.next_fires[0] ?? "9"));
    return table("Schedules", [{ name: "State" }, { name: "Name" }, { name: "When" }, { name: "Agent" }, { name: "Next" }, { name: "Last" }, { name: "Rules" }, { name: "", kind: "acts" }], items.map((each) => row(page, each, reading)));
  };
  return { title: () => "Schedules", crumbs: () => [["Schedules", to("schedules")]], draw: () => [head("Schedules", "Each in its own time zone."), shown(reading, draw)] };
}

function row(page, each, reading) {
  const off = { isOff: Boolean(page.shell.whyNot), title: page.shell.whyNot, kind: "small" };
  const [next, ...later] = each.next_fires;
  const path = `/schedules${at(each.name)}`;
  const act = (verb, glyph, text, confirm, done) => () => {
    if (!mayAct(page.shell)) return;
    askAct({ title: `${verb} ${brief(each.name, 60)}?`, glyph, text, confirm, command: () => command("schedules", verb === "Run" ? "run" : verb.toLowerCase(), each.name), act: ({ note }) => post(`${path}/${verb.toLowerCase()}`, { note }).then((told) => (reading.again(), done?.(told), told)), done: (told) => told.what ?? `started ${told.id}` });
  };
  return {
    key: each.name,
    cells: [
      each.paused ? chip("paused") : chip("done", "on"),
      h("strong", null, brief(each.name, 80)),
      h("span", { class: "two" }, h("span", null, brief(each.explained, 120)), h("span", { class: "mono quiet" }, `${brief(each.cron, 60)} ${brief(each.tz, 40)}`)),
      brief(each.agent, 60),
      each.paused ? h("span", { class: "quiet" }, "not until it is resumed") : h("span", { class: "two" }, next ? when(next) : "never", h("span", { class: "quiet" }, later.slice(0, 2).map((time) => (new Date(time) - Date.now() < 3_600_000 ? relative(time) : day(time))).join(", "))),
      each.last_run ? h("a", { href: to("runs", each.last_run) }, when(each.last_at)) : h("span", { class: "quiet" }, "never"),
      h("span", { class: "two" }, `missed: ${MISSED[each.missed] ?? `up to ${each.missed}`}`, h("span", { class: "quiet" }, `overlap: ${OVERLAP[each.overlap] ?? each.overlap}${each.skipped ? `, ${each.skipped} skipped` : ""}`)),
      h("span", { class: "row" }, button("Run now", act("Run", "play", "A run of it starts now, beside those of its times.", "Run it now", (run) => go(to("runs", run.id))), off), each.paused ? button("Resume", act("Resume", "play", "It starts runs again from its next time on.", "Resume it"), { ...off, kind: "small plain" }) : button("Pause", act("Pause", "paused", "It starts nothing until it is resumed; runs under way go on.", "Pause it"), { ...off, kind: "small plain" })),
    ],
  };
}
