// The journal: every record, in pages that are read when they come into sight.

import { brief, clean, clock, get, h, length, link } from "../kit.js";

const PAGE = 200;
const HEIGHT = 27;
const OVER = 6;

export class Journal {
	constructor(path, page) {
		this.path = path;
		this.page = page;
		this.pages = new Map();
		this.count = 0;
		this.pool = [];
		this.body = h("div.records", { role: "rowgroup" });
		this.headRow = h("div.record.head", { role: "row" }, ["#", "Time", "Epoch", "Kind", "Key", "Took", "What it holds", "Hash"].map((name) => h("span", { role: "columnheader" }, name)));
		this.root = h("div.journal", { own: true }, h("div.journal-bar", h("span.quiet", "Each record is linked to the one before by its hash."), h("span.grow"), h("button.button.small", { click: () => this.download() }, "Download all as lines")), (this.box = h("div.journal-box", { role: "table", tabindex: "0", label: "Records" }, h("div", { role: "rowgroup" }, this.headRow), this.body)));
		this.onScroll = () => this.schedule();
		addEventListener("scroll", this.onScroll, { passive: true });
	}

	close() {
		removeEventListener("scroll", this.onScroll);
		cancelAnimationFrame(this.frame);
	}

	/** How many records there are now, and whether they are looked at. */
	sync(count, isShown) {
		if (count !== this.count) {
			this.pages.delete(Math.floor(Math.max(0, this.count - 1) / PAGE));
			this.count = count;
			this.body.style.height = `${count * HEIGHT}px`;
			this.box.setAttribute("aria-rowcount", String(count + 1));
			for (const slot of this.pool) slot.number = -1;
		}
		if (!isShown) return;
		const wanted = Number(this.page.params.get("seq"));
		if (wanted && wanted !== this.gone) {
			this.gone = wanted;
			requestAnimationFrame(() => scrollTo(0, this.body.getBoundingClientRect().top + scrollY + (wanted - 1) * HEIGHT - innerHeight / 2));
		}
		this.schedule();
	}

	schedule() {
		if (this.frame) return;
		this.frame = requestAnimationFrame(() => {
			this.frame = 0;
			this.draw();
		});
	}

	draw() {
		if (!this.root.isConnected) return;
		const top = this.body.getBoundingClientRect().top;
		const first = Math.max(0, Math.floor(-top / HEIGHT) - OVER);
		const size = Math.max(0, Math.min(this.count - first, Math.ceil(innerHeight / HEIGHT) + 2 * OVER));
		while (this.pool.length < size) {
			const element = h("div.record", { role: "row" });
			this.body.append(element);
			this.pool.push({ element, number: -1 });
		}
		while (this.pool.length > size) this.pool.pop().element.remove();
		for (let n = first; n < first + size; n += 1) {
			const slot = this.pool[n % size];
			const found = this.pages.get(Math.floor(n / PAGE));
			if (slot.number === n && slot.hasData === Boolean(found?.items)) continue;
			Object.assign(slot, { number: n, hasData: Boolean(found?.items) });
			this.drawRecord(slot.element, n, found?.items?.[n % PAGE], n % PAGE ? found?.items?.[(n % PAGE) - 1] : null);
			if (!found) this.load(Math.floor(n / PAGE));
		}
	}

	drawRecord(element, number, record, former) {
		element.style.transform = `translateY(${number * HEIGHT}px)`;
		element.className = `record${record && former && record.epoch !== former.epoch ? (/"lost": ?"/.test(record.payload?.json ?? "") ? " lost" : " epoch") : ""}${Number(this.page.params.get("seq")) === number + 1 ? " chosen" : ""}`;
		element.setAttribute("aria-rowindex", String(number + 2));
		const holds = record ? (record.payload?.json ?? record.args?.json ?? (record.payload || record.args ? "(stored apart)" : "")) : "";
		const texts = record ? [record.seq, clock(record.at, { withMs: true }), record.epoch, record.kind, record.key || record.name, record.took_s ? length(record.took_s) : "", brief(holds, 260), record.hash.slice(0, 8)] : [number + 1, "", "", "", "", "", "", ""];
		element.replaceChildren(...texts.map((text, at) => h("span", { role: "cell", title: at === 6 || at === 4 ? clean(String(text)).slice(0, 600) : null }, String(text))));
	}

	async load(number) {
		this.pages.set(number, {});
		try {
			const found = await get(`${this.path}/records`, { after: number * PAGE, limit: PAGE });
			this.pages.set(number, { items: found.items });
		} catch {
			setTimeout(() => this.pages.delete(number), 2000);
		}
		this.schedule();
	}

	/** All of it, one record a line. A link cannot say which form it wants, so the text is fetched. */
	async download() {
		const answer = await fetch(link(`${this.path}/records`), { headers: { Accept: "application/x-ndjson" } });
		const url = URL.createObjectURL(await answer.blob());
		h("a", { href: url, download: "journal.ndjson" }).click();
		setTimeout(() => URL.revokeObjectURL(url), 10_000);
	}
}
