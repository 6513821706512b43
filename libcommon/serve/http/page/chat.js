/* ---- the conversation ---- */

function number(x, digits) {
	return x.toLocaleString('en', {maximumFractionDigits: digits, minimumFractionDigits: digits});
}

function facts(t) {
	const f = [];
	if (t.tokens) f.push(`${t.tokens} token${t.tokens === 1 ? '' : 's'}`);
	if (t.rate) f.push(`${number(t.rate, 1)} tokens/s`);
	if (t.first) f.push(`first after ${number(t.first, 2)} s`);
	if (t.cached) f.push(`${t.cached} of ${t.prompt} prompt tokens from the cache`);
	if (t.finish === 'length') f.push('cut at the limit of tokens');
	if (t.finish === 'stopped') f.push('stopped');
	return f.join(' · ');
}

function drawText(t, to) {
	const text = make('div', {className: 'text'});
	if (t.thought) {
		const d = make('details', {className: 'thought', open: !t.text}, make('summary', {textContent: 'Thoughts'}),
			make('div', {textContent: t.thought}));
		to.append(d);
	}
	if (t.role === 'user' || chat.plain)
		text.append(make('span', {className: 'plain', textContent: t.text}));
	else
		markdown(t.text, text);
	if (running && running.turn === t)
		(text.lastElementChild || text).classList.add('wait');
	to.append(text);
}

function drawTurn(t) {
	const i = chat.turns.indexOf(t), last = i === chat.turns.length - 1;
	const e = make('article', {className: 'turn ' + t.role});
	e.setAttribute('aria-label', t.role === 'user' ? 'You' : 'Answer');
	const under = make('div', {className: 'under'});
	drawText(t, e);
	if (t.error)
		e.append(make('div', {className: 'error', textContent: t.error}));
	under.append(make('span', {textContent: facts(t)}));
	if (!(running && running.turn === t)) {
		under.append(make('button', {textContent: 'Copy', onclick: () => copy(t.text)}));
		if (t.role === 'user')
			under.append(make('button', {textContent: 'Edit', disabled: !!running, onclick: () => edit(i)}));
		else if (last)
			under.append(make('button', {textContent: t.error ? 'Try again' : 'Again', disabled: !!running, onclick: again}));
	}
	e.append(under);
	return e;
}

function draw() {
	const log = $('log');
	log.replaceChildren(...chat.turns.map(drawTurn));
	if (!chat.turns.length)
		log.append(make('p', {id: 'empty', textContent: model ? `Say something to ${model}.` : ''}));
	log.scrollTop = log.scrollHeight;
	$('system').value = chat.system || '';
	$('plain').checked = !!chat.plain;
	/* the server's defaults of the two endpoints */
	document.querySelector('[data-set=max_tokens]').placeholder = chat.plain ? '16' : 'rest of context';
	drawList();
	buttons();
}

/* The turn that grows, at most once a frame; the log follows only a reader who is at its end. */
function redraw() {
	if (running.drawing) return;
	const now = running;
	now.drawing = requestAnimationFrame(() => {
		now.drawing = 0;
		if (running !== now || now.chat !== chat) return;
		const log = $('log'), atEnd = log.scrollHeight - log.scrollTop - log.clientHeight < 60;
		const old = log.lastElementChild, e = drawTurn(now.turn);
		const open = old && old.querySelector('details');
		if (open && e.querySelector('details')) e.querySelector('details').open = open.open;
		if (old) old.replaceWith(e);
		if (atEnd) log.scrollTop = log.scrollHeight;
	});
}

function drawList() {
	$('list').replaceChildren(...chats.filter(c => c.turns.length || c === chat).map(c => {
		const name = c.turns.length ? c.turns[0].text.slice(0, 60) : 'New conversation';
		const li = make('li', {className: c === chat ? 'now' : ''},
			make('button', {textContent: name, title: name, onclick: () => open(c)}));
		if (c === chat) li.firstChild.setAttribute('aria-current', 'true');
		const gone = make('button', {textContent: '✕', onclick: () => remove(c)});
		gone.setAttribute('aria-label', 'Delete ' + name);
		li.append(gone);
		return li;
	}));
}

function buttons() {
	$('send').textContent = running ? 'Stop' : 'Send';
	$('send').title = running ? 'Esc' : 'Enter';
}

/* What stands in the field unsent stays with its conversation. */
function open(c) {
	if (chat) chat.draft = $('say').value;
	chat = c;
	$('say').value = c.draft || '';
	closeMenu();
	draw();
	grow();
	$('say').focus();
}

function fresh() {
	const c = chats.find(c => !c.turns.length) || {turns: [], system: '', plain: !!sets.plain};
	chats = [c, ...chats.filter(o => o !== c)];
	open(c);
}

function remove(c) {
	if (running && running.chat === c) stop();
	chats = chats.filter(o => o !== c);
	save();
	if (c === chat) chats.length ? open(chats[0]) : fresh();
	else drawList();
}

function edit(i) {
	const t = chat.turns[i];
	chat.turns.length = i;
	save();
	draw();
	$('say').value = t.text;
	grow();
	$('say').focus();
}

async function copy(text) {
	try { await navigator.clipboard.writeText(text); } catch { /* not over plain HTTP from elsewhere */
		const t = make('textarea', {value: text});
		document.body.append(t);
		t.select();
		document.execCommand('copy');
		t.remove();
	}
}

/* ---- an answer ---- */

function body(turns) {
	const b = {model, stream: true, stream_options: {include_usage: true}};
	for (const [name, value] of Object.entries(sets))
		if (name !== 'plain' && value !== '' && value !== null) b[name] = value;
	if (chat.plain)
		b.prompt = (chat.system || '') + turns.map(t => t.text).join('');
	else
		b.messages = [...(chat.system ? [{role: 'system', content: chat.system}] : []),
			...turns.filter(t => t.text).map(t => ({role: t.role, content: t.text}))];
	return b;
}

async function failure(r) {
	const text = await r.text();
	try { return JSON.parse(text).error.message; } catch { return `${r.status} ${r.statusText} ${text.slice(0, 200)}`; }
}

/* One event of the stream; false: it was the last. */
function take(t, data, clock) {
	if (data === '[DONE]') return false;
	const v = JSON.parse(data), c = v.choices && v.choices[0];
	if (v.error) throw new Error(v.error.message);
	if (v.usage) {
		t.tokens = v.usage.completion_tokens;
		t.prompt = v.usage.prompt_tokens;
		t.cached = v.usage.prompt_tokens_details?.cached_tokens;
	}
	if (!c) return true;
	const text = c.delta ? c.delta.content : c.text, thought = c.delta && c.delta.reasoning_content;
	if (text || thought) {
		clock.last = performance.now();
		clock.first ||= clock.last;
		clock.events++;
		t.text += text || '';
		if (thought) t.thought = (t.thought || '') + thought;
		t.first = (clock.first - clock.start) / 1000;
	}
	if (c.finish_reason) t.finish = c.finish_reason;
	if (clock.last > clock.first + 20) { /* ms: of less no rate can be told */
		const n = t.tokens || clock.events; /* until usage comes an event counts as a token */
		t.rate = (n - 1) * 1000 / (clock.last - clock.first);
	}
	return true;
}

async function stream(r, t, clock) {
	const reader = r.body.pipeThrough(new TextDecoderStream()).getReader();
	let held = '';
	for (;;) {
		const {value, done} = await reader.read();
		if (done) throw new Error('The server ended the stream in the middle.');
		held += value;
		const events = held.split(/\r?\n\r?\n/);
		held = events.pop();
		for (const e of events) {
			const data = e.split(/\r?\n/).filter(l => l.startsWith('data:')).map(l => l.slice(5).trim()).join('\n');
			if (data && !take(t, data, clock)) return;
		}
		redraw();
	}
}

async function answer() {
	const turns = chat.turns.slice(), t = {role: 'assistant', text: ''};
	const now = {abort: new AbortController(), turn: t, chat};
	const clock = {start: performance.now(), first: 0, last: 0, events: 0};
	chat.turns.push(t);
	running = now;
	say('');
	draw();
	$('log').setAttribute('aria-busy', 'true');
	try {
		const r = await fetch(chat.plain ? 'v1/completions' : 'v1/chat/completions',
			{method: 'POST', headers: headers(), body: JSON.stringify(body(turns)), signal: now.abort.signal});
		if (!r.ok) {
			t.error = await failure(r);
			if (r.status === 401) panel('settings', true), $('key').focus();
		} else {
			await stream(r, t, clock);
		}
	} catch (e) {
		if (e.name === 'AbortError') t.finish = 'stopped';
		else t.error = e instanceof TypeError ? 'The server does not answer.' : e.message;
	}
	if (!t.tokens && clock.events) t.tokens = clock.events;
	running = null;
	$('log').setAttribute('aria-busy', 'false');
	save();
	if (now.chat === chat) {
		const log = $('log'), top = log.scrollTop, atEnd = log.scrollHeight - top - log.clientHeight < 60;
		draw();
		if (!atEnd) log.scrollTop = top;
	}
	buttons();
}

function stop() {
	if (running) running.abort.abort();
}

function again() {
	if (running) return;
	while (chat.turns.length && chat.turns[chat.turns.length - 1].role === 'assistant') chat.turns.pop();
	answer();
}

function submit() {
	const text = $('say').value;
	if (running) return stop();
	if (!text.trim()) return;
	chat.turns.push({role: 'user', text: chat.plain ? text : text.trim()});
	chats = [chat, ...chats.filter(c => c !== chat)];
	$('say').value = '';
	grow();
	answer();
}

function grow() {
	const s = $('say');
	s.style.height = 'auto';
	s.style.height = s.scrollHeight + 'px';
}
/* SPDX-License-Identifier: Apache-2.0 */
