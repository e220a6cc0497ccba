// Queues: how many run at once, and who waits.

import { at, post } from "../api.js";
import { mayAct } from "../acts.js";
import { brief, h } from "../dom.js";
import { to } from "../router.js";
import { askAct, button, chip, commandLine, empty, head, meter, shown, table } from "../ui.js";
import { amount, command, length, relative } from "../words.js";

export function queueTable(page, reading, data) {
  if (!data.items.length) return h("div", { class: "card" }, empty("queue", "No queue has limits", "app.queue(name, concurrency=…) gives one; runs without a queue are in “default”, which has none.", commandLine("holdfast queues set mail --concurrency 4")));
  return table(
    "Queues",
    [{ name: "State" }, { name: "Queue" }, { name: "Running" }, { name: "Queued", kind: "num" }, { name: "At once", kind: "num" }, { name: "Per key", kind: "num" }, { name: "Starts" }, { name: "", kind: "acts" }],
    data.items.map((each) => ({
      key: each.name,
      cells: [
        each.paused ? chip("paused") : each.held_until && new Date(each.held_until) > Date.now() ? chip("sleeping", `held, ${relative(each.held_until)}`) : chip("done", "open"),
        h("a", { href: to("runs", { q: `queue:${each.name}` }) }, h("strong", null, brief(each.name, 80))),
        h("span", { class: "row" }, each.concurrency ? meter(each.running, each.concurrency, `${each.running} of ${each.concurrency}`) : null, amount(each.running)),
        amount(each.queued),
        each.concurrency ?? "–",
        each.per_key ?? "–",
        each.rate ? `${each.rate[0]} in ${length(each.rate[1])}` : "–",
        button(each.paused ? "Resume" : "Pause", turn(page, each, reading), { kind: "small plain", isOff: Boolean(page.shell.whyNot), title: page.shell.whyNot }),
      ],
    })),
  );
}

function turn(page, each, reading) {
  const verb = each.paused ? "resume" : "pause";
  return () => {
    if (!mayAct(page.shell)) return;
    askAct({ title: `${each.paused ? "Resume" : "Pause"} queue ${brief(each.name, 60)}?`, glyph: each.paused ? "play" : "paused", text: each.paused ? "Runs that wait in it are taken again." : "No more runs of it are taken; those under way go on until they wait or end.", confirm: each.paused ? "Resume it" : "Pause it", command: () => command("queues", verb, each.name), act: ({ note }) => post(`/queues${at(each.name)}/${verb}`, { note }).then((told) => (reading.again(), told)) });
  };
}

export function queues(page) {
  const reading = page.read("/queues", null, ["run"]);
  return { title: () => "Queues", crumbs: () => [["Queues", to("queues")]], draw: () => [head("Queues", "Limits hold for all workers together."), shown(reading, (data) => queueTable(page, reading, data))] };
}
