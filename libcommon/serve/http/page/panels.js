/* ---- the scheduler ---- */

let looking = 0;
const past = [];

function line(id, pick, most) {
	$(id).setAttribute('points', past.map((p, i) => `${120 - past.length + i + 1},${98 - 94 * pick(p) / most}`).join(' '));
}

function drawLive(v) {
	const used = v.blocks - v.free_blocks, share = v.blocks ? 100 * used / v.blocks : 0;
	const rows = [['Running', `${v.running} of ${v.max_num_seqs}`], ['Waiting', v.waiting],
		['Tokens of the last step', `${v.step_tokens} of ${v.max_num_batched_tokens}`], ['Steps', number(v.steps, 0)],
		['Prompt tokens found in the cache', v.prefix_cache_queries ?
			number(100 * v.prefix_cache_hits / v.prefix_cache_queries, 1) + ' %' : '–'],
		['Preemptions', number(v.preemptions, 0)]];
	if (!v.current) rows.push(['Current step has taken', number(v.step_seconds, 0) + ' s']);
	$('facts').replaceChildren(...rows.flatMap(([a, b]) => [make('dt', {textContent: a}), make('dd', {textContent: b})]));
	$('kv').firstElementChild.style.width = share + '%';
	$('kv').setAttribute('aria-valuenow', share.toFixed(0));
	$('kv-text').textContent = `${number(used, 0)} of ${number(v.blocks, 0)} blocks of ${v.block_size} tokens`;
	past.push([v.running, v.waiting]);
	if (past.length > 120) past.shift();
	const most = Math.max(1, ...past.map(p => Math.max(...p)));
	$('peak').textContent = `at most ${most}`;
	line('ran', p => p[0], most);
	line('waited', p => p[1], most);
	$('slots').replaceChildren(...v.requests.map(r => make('tr', {className: r.state}, ...[r.id,
		r.state + (r.own && r.tenant ? ' · ' + r.tenant : ''),
		r.computed_tokens < r.prompt_tokens ? `${r.computed_tokens}/${r.prompt_tokens}` : r.prompt_tokens, r.cached_tokens,
		`${r.generated_tokens}/${r.max_tokens}`, number(r.tokens_per_second, 1), number(r.age_seconds, 0) + ' s']
		.map(x => make('td', {textContent: x})))));
	$('none').hidden = v.requests.length > 0;
}

async function look() {
	const turn = ++looking;
	while (turn === looking && !$('live').hidden) {
		let wrong = '';
		try {
			const r = await fetch('slots', {headers: headers()});
			if (r.ok) drawLive(await r.json());
			else wrong = await failure(r);
		} catch { wrong = 'The server does not answer.'; }
		$('live-error').textContent = wrong;
		$('live-error').hidden = !wrong;
		await new Promise(done => setTimeout(done, document.hidden ? 5000 : 1000));
	}
}

/* ---- panels, colours, keys ---- */

function panel(id, on) {
	for (const p of ['settings', 'live']) {
		const show = p === id && (on ?? $(p).hidden);
		$(p).hidden = !show;
		$('to-' + p).setAttribute('aria-pressed', show);
	}
	closeMenu();
	if (!$('live').hidden) look();
}

function closeMenu() {
	$('chats').classList.remove('open');
	$('menu').setAttribute('aria-expanded', 'false');
}

const dark = matchMedia('(prefers-color-scheme: dark)');

function colours(next) {
	const order = ['system', 'light', 'dark'], name = {system: 'as the system', light: 'light', dark: 'dark'};
	let t = kept.read('theme', 'system');
	if (next) kept.write('theme', t = order[(order.indexOf(t) + 1) % 3]);
	document.documentElement.classList.toggle('dark', t === 'dark' || (t === 'system' && dark.matches));
	document.documentElement.style.colorScheme = t === 'system' ? '' : t;
	$('theme').textContent = {system: '◐', light: '☀', dark: '☾'}[t];
	$('theme').setAttribute('aria-label', 'Colours: ' + name[t]);
	$('theme').title = `Colours: ${name[t]} (Alt+T)`;
}

function onKey(e) {
	const writing = e.target.matches('input, textarea, select');
	const alt = {KeyN: fresh, KeyS: () => panel('settings'), KeyL: () => panel('live'), KeyT: () => colours(true)}[e.code];
	if (e.altKey && !e.ctrlKey && !e.metaKey && alt) {
		e.preventDefault();
		alt();
	} else if (e.key === 'Escape' && !e.isComposing) {
		if (running) stop();
		else if (!$('settings').hidden || !$('live').hidden) panel(''), $('say').focus();
	} else if (e.key === '/' && !writing) {
		e.preventDefault();
		$('say').focus();
	}
}

function readSets() {
	for (const e of document.querySelectorAll('[data-set]')) {
		const name = e.dataset.set;
		if (e.value === '' || !e.checkValidity()) delete sets[name];
		else sets[name] = e.type === 'number' ? Number(e.value) : e.value;
	}
	kept.write('sets', sets);
}

function showSets() {
	for (const e of document.querySelectorAll('[data-set]')) e.value = sets[e.dataset.set] ?? '';
}

async function meet() {
	for (;;) {
		try {
			const r = await fetch('v1/models', {headers: headers()});
			if (r.ok) {
				const m = (await r.json()).data[0];
				model = m.id;
				$('model').textContent = `${model} · context of ${number(m.max_model_len, 0)} tokens`;
				document.title = model + ' · dt';
				if (!chat.turns.length) draw();
				return;
			}
			if (r.status === 401) {
				$('model').textContent = 'asks for a key';
				return panel('settings', true), $('key').focus();
			}
			$('model').textContent = await failure(r);
		} catch { $('model').textContent = 'does not answer'; }
		await new Promise(done => setTimeout(done, 1500));
	}
}

$('ask').onsubmit = e => { e.preventDefault(); submit(); };
$('say').oninput = grow;
$('say').onkeydown = e => {
	if (e.key === 'Enter' && !e.shiftKey && !e.isComposing) {
		e.preventDefault();
		if (!running) submit();
	} else if (e.key === 'ArrowUp' && !$('say').value && !running) {
		const i = chat.turns.findLastIndex(t => t.role === 'user');
		if (i >= 0) e.preventDefault(), edit(i);
	}
};
$('new').onclick = fresh;
$('menu').onclick = () => {
	const on = $('chats').classList.toggle('open');
	if (on) panel(''), $('chats').classList.add('open');
	$('menu').setAttribute('aria-expanded', on);
};
$('to-live').onclick = () => panel('live');
$('to-settings').onclick = () => panel('settings');
$('theme').onclick = () => colours(true);
for (const b of document.querySelectorAll('[data-close]')) b.onclick = () => panel('');
for (const e of document.querySelectorAll('[data-set]')) e.oninput = readSets;
$('defaults').onclick = () => { sets = {plain: sets.plain}; kept.write('sets', sets); showSets(); };
$('system').oninput = () => { chat.system = $('system').value; save(); };
$('plain').onchange = () => { sets.plain = chat.plain = $('plain').checked; kept.write('sets', sets); save(); draw(); };
$('key').value = key();
$('keep').checked = !!kept.read('key', '');
$('key').onchange = $('keep').onchange = () => {
	try { sessionStorage.setItem('dt.key', $('key').value); } catch { say('This browser keeps no key.'); }
	kept.write('key', $('keep').checked ? $('key').value : '');
	meet();
};
$('export').onclick = () => {
	const a = make('a', {download: 'conversations.json',
		href: URL.createObjectURL(new Blob([JSON.stringify(chats, null, 1)], {type: 'application/json'}))});
	a.click();
	URL.revokeObjectURL(a.href);
};
$('clear').onclick = () => {
	if (!confirm('Delete all conversations of this browser?')) return;
	stop();
	chats = [];
	save();
	fresh();
};
document.onkeydown = onKey;
dark.onchange = () => colours(false);
colours(false);
showSets();
chat = chats[0];
chat && !chat.turns.some(t => !t) ? draw() : fresh();
meet();
/* SPDX-License-Identifier: Apache-2.0 */
