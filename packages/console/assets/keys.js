import { $, $$ } from './dom.js'

const PLACES = { o: '/', q: '/queue', r: '/runs', e: '/events', u: '/usage', d: '/dead' }
let isGoing = false

document.addEventListener('keydown', (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || event.target.matches('input, select, textarea')) return
  const { key } = event
  if (isGoing && PLACES[key]) location.assign(document.body.dataset.path + PLACES[key])
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
