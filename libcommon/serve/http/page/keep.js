/* Helpers, what this browser keeps, and Markdown. One script with chat.js and panels.js. */
'use strict';
const $ = id => document.getElementById(id);
const make = (tag, props, ...children) => {
	const e = Object.assign(document.createElement(tag), props);
	e.append(...children);
	return e;
};

/* ---- what this browser keeps ---- */

const kept = {
	read(name, otherwise) {
		try { return JSON.parse(localStorage.getItem('dt.' + name)) ?? otherwise; } catch { return otherwise; }
	},
	write(name, value) {
		try {
			localStorage.setItem('dt.' + name, JSON.stringify(value));
			return true;
		} catch { return false; } /* private window, or full */
	},
};
let chats = kept.read('chats', []);
let sets = kept.read('sets', {});
let model = null;
let chat = null;
let running = null; /* {abort, turn} of the answer that comes */

if (!Array.isArray(chats))
	chats = [];

function save() {
	if (!kept.write('chats', chats.filter(c => c.turns.length)))
		say('This browser has no room for the conversation: it is lost when this page is closed.');
}

function key() {
	try { return sessionStorage.getItem('dt.key') || kept.read('key', ''); } catch { return ''; }
}

function headers() {
	const h = {'Content-Type': 'application/json'};
	if (key())
		h.Authorization = 'Bearer ' + key();
	return h;
}

function say(text) {
	$('status').textContent = text;
	$('status').hidden = !text;
	$('status').className = 'error';
}

/* ---- Markdown: elements are made one by one, so that no answer can bring any of its own ---- */

function inline(text, to) {
	const mark = /`([^`\n]+)`|\*\*([^\s*](?:[^\n]*?[^\s*])?)\*\*|\*([^\s*](?:[^*\n]*?[^\s*])?)\*|\[([^\]\n]+)\]\((https?:\/\/[^\s)]+)\)/g;
	let at = 0;
	for (const m of text.matchAll(mark)) {
		to.append(text.slice(at, m.index));
		at = m.index + m[0].length;
		if (m[1] !== undefined)
			to.append(make('code', {textContent: m[1]}));
		else if (m[2] !== undefined)
			inline(m[2], to.appendChild(make('strong')));
		else if (m[3] !== undefined)
			inline(m[3], to.appendChild(make('em')));
		else
			to.append(make('a', {textContent: m[4], href: m[5], target: '_blank', rel: 'noopener noreferrer'}));
	}
	to.append(text.slice(at));
}

function block(lines, to) {
	const first = lines[0];
	const item = /^\s*(?:[-*+]|(\d+)[.)])\s+/;
	let m;
	if ((m = first.match(/^(#{1,6})\s+(.*)/)) && lines.length === 1)
		return inline(m[2], to.appendChild(make('h' + Math.min(m[1].length, 3))));
	if (lines.every(l => /^>/.test(l)))
		return markdown(lines.map(l => l.replace(/^> ?/, '')).join('\n'), to.appendChild(make('blockquote')));
	if ((m = first.match(item))) {
		const list = to.appendChild(make(m[1] ? 'ol' : 'ul', m[1] ? {start: +m[1]} : {}));
		let li;
		for (const l of lines) {
			if (item.test(l))
				li = list.appendChild(make('li'));
			else
				li.append(' ');
			inline(l.replace(item, '').trim(), li);
		}
		return;
	}
	const p = to.appendChild(make('p'));
	lines.forEach((l, i) => { if (i) p.append(make('br')); inline(l, p); });
}

function markdown(text, to) {
	const item = /^\s*(?:[-*+]|\d+[.)])\s+/;
	let part = [], fence = null, code = [];
	const flush = () => { if (part.length) block(part, to); part = []; };
	const end = () => {
		to.append(make('pre', {}, make('code', {textContent: code.join('\n')})));
		fence = null, code = [];
	};
	for (const line of text.split('\n')) {
		const m = line.match(/^\s*(```+|~~~+)/);
		if (fence) {
			if (m && m[1].startsWith(fence) && line.trim() === m[1]) end();
			else code.push(line);
		} else if (m) {
			flush();
			fence = m[1];
		} else if (!line.trim()) {
			flush();
		} else {
			if (/^#{1,6}\s/.test(line) || (part.length && item.test(line) && !item.test(part[0])))
				flush();
			part.push(line);
			if (/^#{1,6}\s/.test(line)) flush();
		}
	}
	flush();
	if (fence) end();
}
/* SPDX-License-Identifier: Apache-2.0 */
