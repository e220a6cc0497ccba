// Views that somebody saved: names for filters of runs, kept in this browser.

import { h } from "./dom.js";
import { keep, recall } from "./memory.js";
import { button, commandLine, field, iconButton, openDialog, say } from "./ui.js";

const PLACE = "hf-views";
const MOST = 12;

/** As [name, filter]. */
export function savedViews() {
	try {
		const found = JSON.parse(recall(PLACE) ?? "[]");
		return found.filter((each) => each?.length === 2 && each.every((text) => typeof text === "string")).slice(0, MOST);
	} catch {
		return [];
	}
}

function keepViews(views) {
	if (!keep(PLACE, JSON.stringify(views))) say("The browser does not let the page keep views.", "bad");
}

export function saveView(filter, command, done) {
	let name = "";
	openDialog("Save this view", "runs", (update, close) => {
		const save = (event) => {
			event.preventDefault();
			if (!name.trim()) return;
			keepViews([...savedViews().filter(([each]) => each !== name.trim()), [name.trim(), filter]].slice(-MOST));
			close();
			done();
		};
		return [
			h("form", { on: { submit: save } }, field("Name", h("input", { type: "text", maxlength: "40", autofocus: "", value: name, on: { input: (event) => ((name = event.target.value), update()) } }), h("small", "It is kept in this browser, in place of a view of that name."))),
			command && commandLine(command),
			h("footer", button("Leave it", close), button("Save the view", save, { kind: "primary", isOff: !name.trim() })),
		];
	});
}

export function forgetButton(name, done) {
	return iconButton("close", `Forget the view ${name}`, () => (keepViews(savedViews().filter(([each]) => each !== name)), done()));
}
