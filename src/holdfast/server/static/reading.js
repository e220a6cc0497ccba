// What a page reads: what was there stays while it is read again, and is there at once when somebody comes back.

import { get, Problem } from "./api.js";

const KEPT = 60;
const SOONEST_MS = 400;
const kept = new Map();

/** An answer of the API that is kept up to date. */
export class Reading {
	constructor(path, given, changed) {
		this.changed = changed;
		this.isBusy = false;
		this.isStale = false;
		this.isOver = false;
		this.at = 0;
		this.aim(path, given);
	}

	/** Read something else; what was there stays until that has come. */
	aim(path, given) {
		const name = `${path} ${JSON.stringify(given ?? {})}`;
		if (name === this.name) return;
		const known = kept.get(name);
		if (known || !this.name) this.data = known ?? null;
		Object.assign(this, { path, given, name, problem: null });
		this.number = (this.number ?? 0) + 1;
		this.isBusy = false;
		this.at = 0;
		this.again();
	}

	/** Read again, soon: several wishes are one. */
	again() {
		if (this.isOver || !this.path) return;
		if (this.isBusy || this.timer) {
			this.isStale = true;
			return;
		}
		const wait = document.hidden ? 2000 : Math.max(0, this.at + SOONEST_MS - Date.now());
		if (wait) this.timer = setTimeout(() => this.#read(), wait);
		else this.#read();
	}

	async #read() {
		clearTimeout(this.timer);
		this.timer = 0;
		this.isBusy = true;
		this.isStale = false;
		const number = this.number;
		try {
			const data = await get(this.path, this.given);
			if (number !== this.number || this.isOver) return;
			this.data = data;
			this.problem = null;
			kept.delete(this.name);
			kept.set(this.name, data);
			if (kept.size > KEPT) kept.delete(kept.keys().next().value);
		} catch (error) {
			if (number !== this.number || this.isOver) return;
			if (!(error instanceof Problem)) throw error;
			this.problem = error;
		}
		this.at = Date.now();
		this.isBusy = false;
		this.changed();
		if (this.isStale) this.again();
	}

	close() {
		this.isOver = true;
		clearTimeout(this.timer);
	}
}
