// The strip above the timeline: all of a run, to scale.

export function drawMap(line, { width, height: tall }, paint) {
	if (!width) return;
	const { map, calls, now, lostAt, range, brush } = line;
	const ratio = devicePixelRatio || 1;
	if (map.width !== Math.round(width * ratio)) Object.assign(map, { width: Math.round(width * ratio), height: Math.round(tall * ratio) });
	const context = map.getContext("2d");
	context.setTransform(ratio, 0, 0, ratio, 0, 0);
	context.clearRect(0, 0, width, tall);
	const { from, to, outages } = line.whole;
	const x = (time) => ((time - from) / (to - from)) * width;
	context.fillStyle = paint.sunken;
	for (const each of outages) context.fillRect(x(each.from), 0, Math.max(2, x(each.to) - x(each.from)), tall);
	const bins = new Float64Array(Math.ceil(width / 3) + 1);
	const work = (start, end) => {
		const last = Math.min(bins.length - 1, Math.floor(x(end) / 3));
		for (let n = Math.max(0, Math.floor(x(start) / 3)); n <= last; n += 1) bins[n] += 1;
	};
	for (const call of calls.list) {
		if (calls.isPlain(call)) {
			work(calls.from(call), call.ended);
			continue;
		}
		const isWait = ["sleep", "ask", "receive"].includes(call.kind);
		for (const piece of calls.pieces(call, now, lostAt)) {
			if (isWait) {
				context.fillStyle = paint.wait;
				context.fillRect(x(piece.from), tall - 4, Math.max(1, x(piece.to) - x(piece.from)), 3);
			} else if (!piece.kind.startsWith("doubt") && piece.kind !== "off") work(piece.from, piece.to);
		}
	}
	const most = Math.max(4, ...bins);
	context.fillStyle = paint.strong;
	bins.forEach((value, n) => value && context.fillRect(n * 3, tall - 5 - (value / most) * (tall - 8), 2, (value / most) * (tall - 8) + 1));
	context.fillStyle = paint.bad;
	for (const each of outages) context.fillRect(x(each.from), 0, 1.5, tall);
	brush.style.display = range ? "block" : "none";
	if (range) {
		brush.style.left = `${x(range.from)}px`;
		brush.style.width = `${Math.max(3, x(range.to) - x(range.from))}px`;
	}
}
