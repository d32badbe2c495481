import { $, $$ } from './dom.js'

const picked = new Map()
let isAll = false

/** Returns the keys that the acts are about: those that are ticked, or all that the filters match. */
export const selection = {
  has: (key) => isAll || picked.has(key),
  set(key, isPicked) {
    isAll = false
    if (isPicked) picked.set(key, JSON.parse(key))
    else picked.delete(key)
    show()
  },
  all() {
    isAll = true
    show()
  },
  none() {
    isAll = false
    picked.clear()
    show()
  },
  wanted: () => (isAll ? { matching: location.search } : { keys: [...picked.values()] }),
}

function show() {
  const bar = $('[data-bulk]')
  const many = isAll ? Number($('.rows').getAttribute('aria-rowcount')) - 1 : picked.size
  bar.hidden = many === 0
  $('[data-picked]', bar).textContent = `${many.toLocaleString('en')} selected`
  for (const box of $$('.rows input')) box.checked = selection.has(box.closest('tr').dataset.key)
}
