import { $, $$, reason } from './dom.js'
import { count } from './times.js'

const FIRST_PAUSE_MS = 500
const LONGEST_PAUSE_MS = 10_000
/** The server sends at least one line in five seconds. */
const SILENT_MS = 15_000

const page = document.body.dataset.live
let stream
let pauseMs = FIRST_PAUSE_MS
let heardAt = 0

/** Keeps the page up to date by one stream, while the tab is in sight. */
export async function follow() {
  if (!page || stream || document.hidden) return
  const own = new AbortController()
  stream = own
  try {
    const response = await fetch(`${document.body.dataset.path}/live?page=${encodeURIComponent(page)}`, {
      signal: own.signal,
    })
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
  setTimeout(() => void follow(), pauseMs)
  pauseMs = Math.min(pauseMs * 2, LONGEST_PAUSE_MS)
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
    : 'The page may be old. It goes on by itself when the console answers again.'
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
  if ('version' in regions) document.dispatchEvent(new Event('fairlead:rows'))
}

function made(id) {
  const region = document.createElement('div')
  region.id = `r-${id}`
  region.className = 'region'
  $('#main').append(region)
  return region
}

/** Keeps the focus and the open details where they are. */
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
  else void follow()
})

setInterval(() => {
  count()
  if (stream && heardAt && performance.now() - heardAt > SILENT_MS) stream.abort()
}, 1000)
