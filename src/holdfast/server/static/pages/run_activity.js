// Who had the run, and who did what to it, in one list.

import { brief, clock, empty, h, icon, when } from "../kit.js";

const PROOFS = { lock: "its lock is free", lease: "its lease ran out", boot: "its host was started anew", released: "it was given back" };

export function activity(run, claims, acts) {
	const items = [
		{ at: run.created_at, glyph: "play", text: "Started", more: run.parent_id ? `by run ${run.parent_id}` : "" },
		...claims.map((claim) => ({
			at: new Date(claim.at).toISOString(), glyph: claim.lost ? "cut_off" : "worker",
			text: claim.lost ? `Worker ${brief(claim.worker, 24)} took it over` : `Worker ${brief(claim.worker, 24)} took it`,
			more: claim.lost ? `from ${brief(claim.lost, 24)}, known to be dead: ${PROOFS[claim.proof] ?? brief(claim.proof ?? "", 60)}` : "",
		})),
		...(acts ?? []).map((act) => ({ at: act.at, glyph: "info", text: `${brief(act.by ?? "somebody", 60)}: ${brief(act.what ?? act.act ?? "", 80)}`, more: [act.via ? `by ${act.via}` : "", brief(act.note ?? "", 300)].filter(Boolean).join(" · ") })),
	].sort((a, b) => (a.at < b.at ? -1 : 1));
	if (!items.length) return empty("info", "Nothing yet");
	return h("ol.activity", items.map((each, n) => h("li", { key: String(n) }, icon(each.glyph), h("div.grow", h("strong", each.text), each.more && h("p.quiet", each.more)), h("span.quiet.num", { title: each.at }, clock(each.at, { withDate: true })), h("span.quiet", when(each.at)))));
}
