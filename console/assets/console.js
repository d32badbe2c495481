/** Keeps a page up to date, shows long tables by what is in sight, and sends what a person wants done. */
const $ = (selector, within = document) => within.querySelector(selector)
const $$ = (selector, within = document) => [...within.querySelectorAll(selector)]

// One stream per tab

const FIRST_PAUSE_MS = 500
const LONGEST_PAUSE_MS = 10_000
/** The server says something every five seconds. */
const SILENT_MS = 15_000

const page = document.body.dataset.live
let stream
let pauseMs = FIRST_PAUSE_MS
let heardAt = 0

async function follow() {
  if (!page || stream || document.hidden) return
  const own = new AbortController()
  stream = own
  try {
    const response = await fetch(`/live?page=${encodeURIComponent(page)}`, { signal: own.signal })
    if (!response.ok) throw Object.assign(new Error(await reason(response)), { status: response.status })
    const reader = response.body.pipeThrough(new TextDecoderStream()).getReader()
    let text = ''
    for (;;) {
      const { done, value } = await reader.read()
      if (done) break
      heard()
      text += value
      const messages = text.split('\n\n')
      text = messages.pop()
      for (const message of messages) if (message.startsWith('data: ')) update(JSON.parse(message.slice(6)))
    }
  } catch (error) {
    if (own.signal.aborted && document.hidden) return
    lost(error)
  } finally {
    if (stream === own) stream = undefined
  }
  if (document.hidden) return
  if (!$('#live').classList.contains('off')) lost()
  setTimeout(follow, pauseMs)
  pauseMs = Math.min(pauseMs * 2, LONGEST_PAUSE_MS)
}

const reason = async (response) => {
  try {
    return (await response.json()).say
  } catch {
    return response.statusText
  }
}

function heard() {
  heardAt = performance.now()
  pauseMs = FIRST_PAUSE_MS
  const live = $('#live')
  if (live.classList.contains('off')) note('')
  live.classList.remove('off')
  live.textContent = 'live'
}

function lost(error) {
  const live = $('#live')
  live.classList.add('off')
  live.textContent = 'not live'
  const why = error?.status
    ? `${error.message[0].toUpperCase()}${error.message.slice(1)}.`
    : 'What is shown may be old. The page goes on by itself when the console answers again.'
  note(error?.status === 401 ? 'The console does not know this browser any more.' : 'The console does not answer.', why)
}

function note(title, say) {
  const place = $('#r-notice')
  place.replaceChildren()
  if (!title) return
  const box = document.createElement('div')
  box.className = 'note bad'
  const strong = document.createElement('strong')
  strong.textContent = title
  const text = document.createElement('p')
  text.textContent = say
  box.append(strong, text)
  place.append(box)
}

/** A region that a person has selected text in stays as it is until the selection is gone. */
const waiting = new Map()
const isSelectedIn = (region) => {
  const selection = getSelection()
  return selection && !selection.isCollapsed && region.contains(selection.anchorNode)
}

function update(regions) {
  for (const [id, markup] of Object.entries(regions)) {
    const region = $(`#r-${id}`) ?? made(id)
    if (isSelectedIn(region)) waiting.set(id, markup)
    else replace(region, markup)
  }
  if ('version' in regions) rows?.changed()
}

function made(id) {
  const region = document.createElement('div')
  region.id = `r-${id}`
  region.className = 'region'
  $('#main').append(region)
  return region
}

/** What has the focus, what is open, and how far it is scrolled stay so. */
function replace(region, markup) {
  const focused = region.contains(document.activeElement) ? pathTo(document.activeElement, region) : undefined
  const open = $$('details', region).map((one) => one.open)
  region.innerHTML = markup
  for (const [index, one] of $$('details', region).entries()) if (open[index]) one.open = true
  if (focused) elementAt(focused, region)?.focus({ preventScroll: true })
}

/** By its address or its place, which stays while rows come and go before it. */
function pathTo(element, region) {
  const href = element.getAttribute('href')
  return { href, index: $$('a, button, summary, input', region).indexOf(element) }
}

function elementAt({ href, index }, region) {
  const all = $$('a, button, summary, input', region)
  return (href && all.find((one) => one.getAttribute('href') === href)) || all[index]
}

document.addEventListener('selectionchange', () => {
  for (const [id, markup] of waiting) {
    const region = $(`#r-${id}`)
    if (!region || isSelectedIn(region)) continue
    waiting.delete(id)
    replace(region, markup)
  }
})

document.addEventListener('visibilitychange', () => {
  if (document.hidden) stream?.abort()
  else follow()
})

setInterval(() => {
  count()
  if (stream && heardAt && performance.now() - heardAt > SILENT_MS) stream.abort()
}, 1000)

/** `3m10s`, as the server writes it. */
function duration(ms) {
  const seconds = Math.max(0, Math.floor(ms / 1000))
  if (seconds < 60) return `${seconds}s`
  const minutes = Math.floor(seconds / 60)
  if (minutes < 10) return `${minutes}m${seconds % 60}s`
  if (minutes < 180) return `${minutes}m`
  const hours = Math.floor(minutes / 60)
  return hours < 48 ? `${hours}h${minutes % 60}m` : `${Math.floor(hours / 24)}d`
}

function count() {
  const now = Date.now()
  for (const time of $$('time')) {
    const at = Date.parse(time.dateTime)
    const text = duration(time.className === 'ahead' ? at - now : now - at)
    if (time.textContent !== text) time.textContent = text
  }
}

// A table of which only the rows in sight are there

const SPARE = 15
const picked = new Map()

function virtual(table) {
  const body = $('tbody', table)
  const url = new URL(table.dataset.rows, location.href)
  let total = Number(table.dataset.total)
  let shown = { from: Number(table.dataset.from), to: Number(table.dataset.from) + body.rows.length }
  let isAsking = false
  let isStale = false
  const height = () => Number.parseFloat(getComputedStyle(table).getPropertyValue('--row'))
  const space = () => {
    const row = document.createElement('tr')
    row.className = 'space'
    row.setAttribute('aria-hidden', 'true')
    row.append(document.createElement('td'))
    return row
  }
  const [above, below] = [space(), space()]
  const columns = $$('th', table).length

  function wanted() {
    const top = -body.getBoundingClientRect().top
    const first = Math.max(0, Math.floor(top / height()) - SPARE)
    return { from: Math.min(first, Math.max(0, total - 1)), to: first + Math.ceil(innerHeight / height()) + 2 * SPARE }
  }

  async function ask() {
    if (isAsking) {
      isStale = true
      return
    }
    isAsking = true
    isStale = false
    try {
      const { from, to } = wanted()
      url.searchParams.set('from', String(from))
      url.searchParams.set('to', String(to))
      const response = await fetch(url)
      if (response.ok) show(await response.json())
    } catch {
      // The stream tells that the console is away, and asks again when it is back.
    } finally {
      isAsking = false
    }
    if (isStale) requestAnimationFrame(ask)
  }

  function show({ total: all, from, html }) {
    total = all
    const focused = document.activeElement?.closest('tr')?.dataset.key
    const within = document.activeElement?.tagName
    body.innerHTML = html
    shown = { from, to: from + body.rows.length }
    const tall = height()
    above.firstChild.style.height = `${from * tall}px`
    below.firstChild.style.height = `${Math.max(0, total - shown.to) * tall}px`
    above.firstChild.colSpan = columns
    below.firstChild.colSpan = columns
    if (from > 0) body.prepend(above)
    if (shown.to < total) body.append(below)
    table.setAttribute('aria-rowcount', String(total + 1))
    $('#main').classList.toggle('empty-list', total === 0)
    for (const row of body.rows) {
      const box = $('input', row)
      if (box) box.checked = picked.has(row.dataset.key)
      if (focused && row.dataset.key === focused)
        $(within === 'INPUT' ? 'input' : 'a', row)?.focus({ preventScroll: true })
    }
    count()
  }

  let frame
  const moved = () => {
    frame ??= requestAnimationFrame(() => {
      frame = undefined
      const { from, to } = wanted()
      if (from < shown.from || Math.min(to, total) > shown.to) ask()
    })
  }
  addEventListener('scroll', moved, { passive: true })
  addEventListener('resize', moved)
  body.addEventListener('change', ({ target }) => {
    const { key } = target.closest('tr').dataset
    if (target.checked) picked.set(key, JSON.parse(key))
    else picked.delete(key)
    all = false
    bulk()
  })
  $('.pager')?.remove()
  return { changed: ask }
}

let all = false
function bulk() {
  const bar = $('[data-bulk]')
  if (!bar) return
  const many = all ? Number($('.rows').getAttribute('aria-rowcount')) - 1 : picked.size
  bar.hidden = many === 0
  $('[data-picked]', bar).textContent = `${many.toLocaleString('en')} selected`
}

// What a person wants done

let saying
function say(text) {
  $('#said').textContent = text
  clearTimeout(saying)
  saying = setTimeout(() => ($('#said').textContent = ''), 8000)
}

async function act(wanted) {
  try {
    const response = await fetch('/act', {
      method: 'POST',
      headers: { 'content-type': 'application/json', 'x-fairlead-write': '1' },
      body: JSON.stringify(wanted),
    })
    say(response.ok ? (await response.json()).say : await reason(response))
    return response.ok
  } catch {
    say('The console does not answer: nothing was sent.')
    return false
  }
}

document.addEventListener('click', async ({ target }) => {
  const button = target.closest?.('button')
  if (!button) return
  const { copy, act: which, key, letter, object, confirm, pick } = button.dataset
  if (copy !== undefined) {
    await navigator.clipboard?.writeText(copy).catch(() => undefined)
    say('Copied.')
  }
  if (pick === 'all') all = true
  if (pick === 'none') {
    all = false
    picked.clear()
    for (const box of $$('.rows input')) box.checked = false
  }
  if (pick !== undefined) bulk()
  if ('keys' in button.dataset) $('#keys').showModal()
  if (which === undefined) return
  if (confirm !== undefined && !button.classList.contains('sure')) return askAgain(button, confirm)
  button.disabled = true
  if (key !== undefined) await act({ act: which, keys: [JSON.parse(key)] })
  else if (letter !== undefined) await act({ act: which, letter: Number(letter) })
  else if (object !== undefined) await act({ act: which, object: JSON.parse(object) })
  else {
    const done = await act(all ? { act: which, matching: location.search } : { act: which, keys: [...picked.values()] })
    if (done) {
      picked.clear()
      all = false
      bulk()
      rows?.changed()
    }
  }
  button.disabled = false
})

/** What cannot be taken back needs a second press within some seconds. */
function askAgain(button, question) {
  const before = button.textContent
  button.textContent = `${question}. Press again.`
  button.classList.add('sure')
  setTimeout(() => {
    button.textContent = before
    button.classList.remove('sure')
  }, 4000)
}

document.addEventListener('submit', async (event) => {
  const form = event.target
  if (!('publish' in form.dataset)) return
  event.preventDefault()
  const { kind, namespace, name } = Object.fromEntries(new FormData(form))
  await act({ act: 'publish', object: [kind, namespace || null, name] })
})

document.addEventListener('change', ({ target }) => {
  const form = target.closest('[data-filters]')
  if (form && target.matches('select, [type=checkbox]')) form.requestSubmit()
})

// Keys

const PLACES = { o: '/', q: '/queue', r: '/runs', e: '/events', d: '/dead' }
let isGoing = false

document.addEventListener('keydown', (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || event.target.matches('input, select, textarea')) return
  const { key } = event
  if (isGoing && PLACES[key]) location.assign(PLACES[key])
  isGoing = key === 'g'
  if (key === '?') $('#keys').showModal()
  if (key === '/') {
    event.preventDefault()
    $('.find input').focus()
  }
  if (key === 'j' || key === 'k') step(key === 'j' ? 1 : -1)
})

function step(by) {
  const links = $$('main tbody tr a:first-of-type').filter((one) => one === $('a', one.closest('tr')))
  const index = links.findIndex((one) => one.closest('tr').contains(document.activeElement))
  const next = links[index < 0 ? (by > 0 ? 0 : links.length - 1) : index + by]
  next?.focus()
  next?.scrollIntoView({ block: 'nearest' })
}

const table = $('[data-rows]')
const rows = table ? virtual(table) : undefined
follow()
