// A page that is open: what it reads, hears and draws. All of it ends when somebody goes elsewhere.

import { fill } from "./dom.js";
import { live } from "./live.js";
import { Reading } from "./reading.js";
import { place, revise, to } from "./router.js";

export class Page {
	constructor(root, shell) {
		this.root = root;
		this.shell = shell;
		this.endings = [];
		this.keys = {};
		this.view = null;
		this.isOver = false;
		this.isDue = false;
		Object.assign(this, place());
	}

	/** Begin; `open` gets this and answers with {title, crumbs, draw, drawn}. */
	start(open) {
		this.view = open(this);
		this.draw();
	}

	/** Something of the API, read again when one of these events comes. */
	read(path, given, events = [], fits = () => true) {
		const reading = new Reading(path, given, () => this.update());
		this.endings.push(() => reading.close());
		for (const event of [...events, "resync", "back"]) {
			this.on(event, (data) => (event === "resync" || event === "back" || fits(data)) && reading.again());
		}
		return reading;
	}

	on(event, handler) {
		this.endings.push(live.on(event, handler));
	}

	follow(topic) {
		this.endings.push(live.follow(topic));
	}

	ending(act) {
		this.endings.push(act);
	}

	every(ms, act) {
		const timer = setInterval(act, ms);
		this.endings.push(() => clearInterval(timer));
	}

	/** Draw again, once, after what happens now. */
	update() {
		if (this.isDue || this.isOver) return;
		this.isDue = true;
		queueMicrotask(() => {
			this.isDue = false;
			if (!this.isOver) this.draw();
		});
	}

	draw() {
		if (!this.view) return;
		fill(this.root, this.view.draw());
		this.shell.entitle(this.view.title(), this.view.crumbs?.() ?? []);
		this.view.drawn?.();
		this.restore?.();
	}

	/** Change what stands behind the ? of the address; null takes it away. */
	param(changes) {
		for (const [name, value] of Object.entries(changes)) {
			if (value === null || value === undefined || value === "") this.params.delete(name);
			else this.params.set(name, value);
		}
		revise(to(...this.parts, Object.fromEntries(this.params)));
		this.update();
	}

	close() {
		this.isOver = true;
		this.view?.close?.();
		for (const end of this.endings) end();
	}
}
