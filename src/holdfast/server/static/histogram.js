// Runs over time: done, unfinished, failed.

import { get } from "./api.js";
import { h } from "./dom.js";
import { clock, day } from "./words.js";

const KINDS = ["done", "unfinished", "failed"];

let isKnown = true;

/** How many runs began when; null where the server does not tell. */
export async function histogram(given) {
  if (!isKnown) return null;
  try {
    return await get("/runs/histogram", { ...given, bins: 60 });
  } catch (problem) {
    isKnown = ![400, 404].includes(problem.status);
    return null;
  }
}

/** Bars; with `choose`, a drag over them chooses a time. */
export function bars(found, choose = null) {
  const most = Math.max(1, ...found.bins.map((bin) => KINDS.reduce((sum, kind) => sum + (bin[kind] ?? 0), 0)));
  const from = new Date(found.from).getTime();
  const span = new Date(found.to).getTime() - from;
  const label = (share) => (span > 86_400_000 ? day(from + share * span) : clock(from + share * span));
  const total = found.bins.reduce((sum, bin) => sum + KINDS.reduce((each, kind) => each + (bin[kind] ?? 0), 0), 0);
  return h("div", { class: `histogram${choose ? " drag" : ""}`, role: "img", label: `${total} runs from ${label(0)} on` },
    h("div.bins", { on: choose ? dragging(found, choose) : {} }, found.bins.map((bin, n) => h("span", { key: String(n) }, KINDS.map((kind) => (bin[kind] ? h("i", { class: `bin-${kind}`, style: { height: `${Math.max(3, (bin[kind] / most) * 100)}%` } }) : null))))),
    h("div.scale", [0, 0.33, 0.66].map((share) => h("span", label(share))), h("span", "now")),
  );
}

function dragging(found, choose) {
  let began = null;
  const share = (event) => {
    const box = event.currentTarget.getBoundingClientRect();
    return Math.max(0, Math.min(1, (event.clientX - box.left) / box.width));
  };
  return {
    pointerdown: (event) => (began = share(event)),
    pointerup: (event) => {
      if (began === null) return;
      const [left, right] = [began, share(event)].sort((a, b) => a - b);
      began = null;
      if (right - left < 0.01) return;
      const from = new Date(found.from).getTime();
      const span = new Date(found.to).getTime() - from;
      choose(new Date(from + left * span), new Date(from + right * span));
    },
  };
}
