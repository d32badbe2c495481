import { $, $$ } from './dom.js'
import { selection } from './selection.js'
import { count } from './times.js'

const SPARE = 15

/** Shows of a long table the rows that are in sight. */
export function virtual(table) {
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

  /** Stands for the rows that are not there. */
  function fill() {
    const tall = height()
    above.firstChild.style.height = `${shown.from * tall}px`
    below.firstChild.style.height = `${Math.max(0, total - shown.to) * tall}px`
    above.firstChild.colSpan = columns
    below.firstChild.colSpan = columns
    if (shown.from > 0) body.prepend(above)
    if (shown.to < total) body.append(below)
  }

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
      // The stream shows that the console is away, and the next message of it asks again.
    } finally {
      isAsking = false
    }
    if (isStale) requestAnimationFrame(() => void ask())
  }

  function show({ total: all, from, html }) {
    total = all
    const focused = document.activeElement?.closest('tr')?.dataset.key
    const within = document.activeElement?.tagName
    body.innerHTML = html
    shown = { from, to: from + body.rows.length }
    fill()
    table.setAttribute('aria-rowcount', String(total + 1))
    $('#main').classList.toggle('empty-list', total === 0)
    for (const row of body.rows) {
      const box = $('input', row)
      if (box) box.checked = selection.has(row.dataset.key)
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
      if (from < shown.from || Math.min(to, total) > shown.to) void ask()
    })
  }
  addEventListener('scroll', moved, { passive: true })
  addEventListener('resize', moved)
  body.addEventListener('change', ({ target }) => {
    const { key } = target.closest('tr').dataset
    selection.set(key, target.checked)
  })
  $('.pager')?.remove()
  fill()
  document.addEventListener('fairlead:rows', () => void ask())
}
