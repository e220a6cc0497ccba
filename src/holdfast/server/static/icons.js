// The sprite: shapes of 16 px, drawn with lines of the text's colour.

const SHAPES = {
	anchor: "c8,3.2,1.5 M8 4.7v9 M5.4 7h5.2 M2.5 9.6c.4 2.6 2.4 4.1 5.5 4.1s5.1-1.5 5.5-4.1 M1.6 11l.9-1.6 1.7.7 M14.4 11l-.9-1.6-1.7.7",
	home: "M2.5 7.6 8 3l5.5 4.6 M4 6.6v6.4h8V6.6 M6.7 13V9.6h2.6V13",
	runs: "M2.5 4h4 M9 4h4.5 M2.5 8h1.8 M6.6 8h6.9 M2.5 12h5.6 M10.5 12h3",
	inbox: "M2.5 9.2 4.3 3.5h7.4l1.8 5.7v3.3h-11z M2.5 9.2h3.2l.9 1.7h2.8l.9-1.7h3.2",
	doubt: "M8 1.8 14.2 8 8 14.2 1.8 8z M8 5.9v2.6 d8,10.4,.55",
	calendar: "r2.5,3.3,11,10.2,1.2 M2.5 6.5h11 M5.4 1.9v2.6 M10.6 1.9v2.6",
	bolt: "M9 1.8 3.4 9h3.8L6.8 14.2 12.6 7H8.6z",
	queue: "M2.5 3.6h11 M2.5 6.5h11 M2.5 9.5h11 M2.5 12.4h7",
	worker: "r2.5,2.8,11,4.4,.9 r2.5,8.8,11,4.4,.9 M5 5h.1 M5 11h.1 M8 5h3 M8 11h3",
	thread: "M2.3 3h8v5.6H6L3.7 10.6V8.6H2.3z M12 6h1.7v6h-1.4v1.7L10 12H6.8",
	shield: "M8 1.8 13 3.5v4c0 3.1-2 5.5-5 6.7-3-1.2-5-3.6-5-6.7v-4z M5.7 7.9l1.7 1.7 3-3.2",
	search: "c7,7,4.2 M10.2 10.2 14 14",
	sun: "c8,8,2.7 M8 1.6v1.6 M8 12.8v1.6 M1.6 8h1.6 M12.8 8h1.6 M3.5 3.5l1.1 1.1 M11.4 11.4l1.1 1.1 M3.5 12.5l1.1-1.1 M11.4 4.6l1.1-1.1",
	moon: "M13.2 9.7A5.6 5.6 0 0 1 6.3 2.8a5.6 5.6 0 1 0 6.9 6.9z",
	more: "d3.5,8,.9 d8,8,.9 d12.5,8,.9",
	copy: "r5.5,5.5,8,8,1.2 M10.5 5.5v-2a1 1 0 0 0-1-1h-6a1 1 0 0 0-1 1v6a1 1 0 0 0 1 1h2",
	close: "M4 4l8 8 M12 4l-8 8",
	back: "M3.3 5.2H9a3.8 3.8 0 1 1-3.7 4.9 M5.6 2.8 3.2 5.2l2.4 2.4",
	fork: "c4,3.6,1.5 c12,3.6,1.5 c8,12.4,1.5 M4 5.1v1.2a2 2 0 0 0 2 2h4a2 2 0 0 0 2-2V5.1 M8 8.3v2.6",
	play: "M5 3.4 12 8 5 12.6z",
	stop: "r4.4,4.4,7.2,7.2,.8",
	link: "M6.8 9.2 9.2 6.8 M7.4 4.8l1.2-1.2a2.7 2.7 0 0 1 3.8 3.8l-1.2 1.2 M8.6 11.2l-1.2 1.2a2.7 2.7 0 0 1-3.8-3.8l1.2-1.2",
	info: "c8,8,5.9 M8 7.4v3.6 d8,5,.6",
	// what a run, or a call, is
	queued: "c8,8,5.4",
	running: "M13.9 8A5.9 5.9 0 1 1 8 2.1 f6.6,5.5l3.9,2.5-3.9,2.5z",
	sleeping: "c8,8,5.9 M8 4.9V8l2.2 1.5",
	waiting: "M5 8.2V4.4a.85.85 0 0 1 1.7 0V7 M6.7 6.8V3a.85.85 0 0 1 1.7 0v3.8 M8.4 6.8V3.6a.85.85 0 0 1 1.7 0v3.6 M10.1 7.4V5.2a.85.85 0 0 1 1.7 0v4.3c0 2.6-1.5 4.2-3.7 4.2-1.7 0-2.7-.7-3.5-2L2.9 8.8a.9.9 0 0 1 1.5-1l.6.8",
	paused: "c8,8,5.9 M6.5 5.8v4.4 M9.5 5.8v4.4",
	in_doubt: "M8 1.8 14.2 8 8 14.2 1.8 8z f8,5.6l2.4,2.4-2.4,2.4-2.4-2.4z",
	blocked: "M8 2.2 14.3 13H1.7z M8 6.2v3.2 d8,11.1,.55",
	quarantined: "M5.5 2h5L14 5.5v5L10.5 14h-5L2 10.5v-5z M5.2 8h5.6",
	cut_off: "M9 1.8 3.4 9h3.8L6.8 14.2 12.6 7H8.6z",
	done: "c8,8,5.9 M5.4 8.2l1.8 1.8 3.4-3.7",
	failed: "c8,8,5.9 M5.9 5.9l4.2 4.2 M10.1 5.9l-4.2 4.2",
	cancelled: "c8,8,5.9 M3.9 12.1 12.1 3.9",
	step: "r3.2,3.2,9.6,9.6,1.4",
	tokens: "M8 2.2c.6 3.6 2.2 5.2 5.8 5.8-3.6.6-5.2 2.2-5.8 5.8-.6-3.6-2.2-5.2-5.8-5.8 3.6-.6 5.2-2.2 5.8-5.8z",
	effect: "M2.2 8h8.3 M7.3 4.4 10.9 8l-3.6 3.6 M13.6 3v10",
	child: "r2.2,2.4,5.2,4,.8 r8.4,9.4,5.2,4,.8 M4.8 6.4v5h3.6",
	sleep: "c8,8,5.6 M8 4.9V8l2.2 1.5",
	ask: "M2.4 3h11.2v7.6H7.6L4.8 13v-2.4H2.4z",
	receive: "M2.5 4h11v8h-11z M2.5 4.6 8 8.8l5.5-4.2",
	other: "c8,8,2.4",
	branch: "M3.4 3v4.6a3 3 0 0 0 3 3h6 M10 8l2.6 2.6L10 13.2",
};

export function sprite() {
	const make = (tag, given) => {
		const made = document.createElementNS("http://www.w3.org/2000/svg", tag);
		for (const [name, value] of Object.entries(given)) made.setAttribute(name, value);
		return made;
	};
	const whole = make("svg", { class: "sprite", "aria-hidden": "true", width: 0, height: 0 });
	for (const [name, text] of Object.entries(SHAPES)) {
		const symbol = make("symbol", { id: `i-${name}`, viewBox: "0 0 16 16" });
		const lines = [];
		for (const part of text.split(/ (?=[A-Za-z])/)) {
			const numbers = part.slice(1).split(",");
			if (part[0] === "c") symbol.append(make("circle", { cx: numbers[0], cy: numbers[1], r: numbers[2] }));
			else if (part[0] === "d") symbol.append(make("circle", { cx: numbers[0], cy: numbers[1], r: numbers[2], class: "solid" }));
			else if (part[0] === "r") {
				symbol.append(make("rect", { x: numbers[0], y: numbers[1], width: numbers[2], height: numbers[3], rx: numbers[4] }));
			} else if (part[0] === "f") symbol.append(make("path", { d: `M${part.slice(1)}`, class: "solid" }));
			else lines.push(part);
		}
		if (lines.length) symbol.append(make("path", { d: lines.join(" ") }));
		whole.append(symbol);
	}
	return whole;
}
