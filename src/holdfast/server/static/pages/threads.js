// Threads: the runs of one as a conversation. Messages of threads have a place here once the API tells of them.

import { at, get } from "../api.js";
import { brief, h } from "../dom.js";
import { to } from "../router.js";
import { empty, head, shown, skeleton, statusOf, table } from "../ui.js";
import { valueView } from "../values.js";
import { amount, money, when } from "../words.js";

export function threads(page) {
  return page.parts[1] ? one(page, page.parts[1]) : all(page);
}

/** The threads of the newest runs. */
function all(page) {
  const reading = page.read("/runs", { limit: 200 }, ["run"]);
  const draw = (data) => {
    const found = new Map();
    for (const run of data.items) {
      if (run.parent_id) continue;
      const known = found.get(run.thread_id) ?? { id: run.thread_id, runs: 0, cost: 0, last: run };
      known.runs += 1;
      known.cost += run.usage.cost;
      found.set(run.thread_id, known);
    }
    const items = [...found.values()].sort((a, b) => b.runs - a.runs || b.last.updated_at.localeCompare(a.last.updated_at)).slice(0, 100);
    if (!items.length) return h("div", { class: "card" }, empty("thread", "No threads yet", "Runs that share a thread_id are one conversation."));
    return table(
      "Threads",
      [{ name: "Thread" }, { name: "Runs", kind: "num" }, { name: "Last run" }, { name: "Status" }, { name: "Cost", kind: "num" }, { name: "Changed", kind: "num" }],
      items.map((each) => ({ key: each.id, cells: [h("a", { class: "mono cut", href: to("threads", each.id) }, brief(each.id, 80)), amount(each.runs), h("span", { class: "cut mono" }, brief(each.last.id, 60)), statusOf(each.last), money(each.cost), when(each.last.updated_at)] })),
    );
  };
  return { title: () => "Threads", crumbs: () => [["Threads", to("threads")]], draw: () => [head("Threads", "Those of the newest 200 runs."), shown(reading, draw)] };
}

function one(page, id) {
  const reading = page.read("/runs", { thread: id, limit: 50 }, ["run"], (run) => run.thread_id === id);
  const details = new Map();
  const know = (run) => {
    const mark = `${run.id} ${run.records}`;
    const known = details.get(run.id);
    if (known?.mark !== mark) {
      details.set(run.id, { mark, data: known?.data ?? null });
      get(`/runs${at(run.id)}`).then((data) => (details.set(run.id, { mark, data }), page.update()), () => {});
    }
    return details.get(run.id).data;
  };
  const draw = (data) => {
    if (!data.items.length) return h("div", { class: "card" }, empty("thread", "This thread has no runs"));
    const items = [...data.items].filter((run) => !run.parent_id).reverse();
    return h("ol", { class: "conversation" }, items.map((run) => h("li", { key: run.id, class: "card" }, h("header", { class: "row wrap" }, statusOf(run), h("h2", null, brief(run.agent, 60)), h("a", { class: "mono", href: to("runs", run.id) }, brief(run.id, 80)), h("span", { class: "grow" }), h("span", { class: "quiet" }, when(run.created_at))), said(know(run), run))));
  };
  return { title: () => id, crumbs: () => [["Threads", to("threads")], [id, ""]], draw: () => [head(brief(id, 80), reading.data ? `${reading.data.items.length} runs` : null), shown(reading, draw)] };
}

function said(detail, run) {
  if (!detail) return skeleton(2);
  return h(
    "div",
    { class: "said" },
    h("div", { class: "in" }, valueView("Given", detail.input, { of: run.id })),
    detail.questions.map((question) => h("p", { key: question.id, class: "asks" }, h("a", { href: to("questions", question.id) }, brief(question.prompt, 300)))),
    h("div", { class: "out" }, detail.result ? valueView("Result", detail.result, { of: run.id }) : detail.questions.length ? null : h("p", { class: "quiet" }, brief(run.now, 300))),
  );
}
