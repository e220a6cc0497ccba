// Views that somebody has saved: names for filters of runs, kept in this browser.

import { h } from "./dom.js";
import { button, commandLine, field, iconButton, openDialog, say } from "./ui.js";

const PLACE = "hf-views";
const MOST = 12;

/** They, as [name, filter]. */
export function savedViews() {
  try {
    const found = JSON.parse(localStorage.getItem(PLACE) ?? "[]");
    return found.filter((each) => each?.length === 2 && each.every((text) => typeof text === "string")).slice(0, MOST);
  } catch {
    return [];
  }
}

function keep(views) {
  try {
    localStorage.setItem(PLACE, JSON.stringify(views));
  } catch {
    say("The browser does not let the page keep views.", "bad");
  }
}

/** Ask for a name; `done` when it is saved. */
export function saveView(filter, command, done) {
  let name = "";
  openDialog("Save this view", "runs", (update, close) => {
    const others = savedViews().filter(([each]) => each !== name.trim());
    const isFull = others.length >= MOST;
    const save = (event) => {
      event.preventDefault();
      if (!name.trim() || isFull) return;
      keep([...others, [name.trim(), filter]]);
      close();
      done();
    };
    return [
      h("form", { on: { submit: save } }, field("Name", h("input", { type: "text", maxlength: "40", autofocus: "", value: name, on: { input: (event) => ((name = event.target.value), update()) } }), h("small", isFull ? `There are ${MOST} views: forget one first.` : others.length < savedViews().length ? "It takes the place of the view of that name." : "It is kept in this browser, and stands behind the other views."))),
      command && commandLine(command),
      h("footer", button("Leave it", close), button("Save the view", save, { kind: "primary", isOff: !name.trim() || isFull })),
    ];
  });
}

/** A button that forgets a view. */
export function forgetButton(name, done) {
  return iconButton("close", `Forget the view ${name}`, () => (keep(savedViews().filter(([each]) => each !== name)), done()));
}
