import { actOnSelection } from './bulk.js'
import { $, reason } from './dom.js'
import { selection } from './selection.js'

let saying
function say(text) {
  $('#report').textContent = text
  clearTimeout(saying)
  saying = setTimeout(() => ($('#report').textContent = ''), 8000)
}

/** Returns the answer to a write; undefined if it was refused. */
async function act(wanted) {
  try {
    const response = await fetch(`${document.body.dataset.path}/act`, {
      method: 'POST',
      headers: { 'content-type': 'application/json', 'x-fairlead-write': '1' },
      body: JSON.stringify(wanted),
    })
    if (!response.ok) {
      say(await reason(response))
      return undefined
    }
    const answer = await response.json()
    say(answer.say)
    return answer
  } catch {
    say('The console does not answer: nothing was sent.')
    return undefined
  }
}

document.addEventListener('click', ({ target }) => {
  const button = target.closest?.('button')
  if (button) void press(button)
})

async function press(button) {
  const { copy, act: which, key, letter, object, confirm, pick } = button.dataset
  if (copy !== undefined) {
    await navigator.clipboard?.writeText(copy).catch(() => undefined)
    say('Copied.')
  }
  if (pick === 'all') selection.all()
  if (pick === 'none') selection.none()
  if ('keys' in button.dataset) $('#keys').showModal()
  if (which === undefined) return
  if (confirm !== undefined && !button.classList.contains('sure')) return askAgain(button, confirm)
  button.disabled = true
  if (key !== undefined) await act({ act: which, keys: [JSON.parse(key)] })
  else if (letter !== undefined) await act({ act: which, letter: Number(letter) })
  else if (object !== undefined) await act({ act: which, object: JSON.parse(object) })
  else await actOnSelection(which, act, say)
  button.disabled = false
}

/** Asks for a second press within some seconds, before an act that cannot be undone. */
function askAgain(button, question) {
  const before = button.textContent
  button.textContent = `${question}. Press again.`
  button.classList.add('sure')
  setTimeout(() => {
    button.textContent = before
    button.classList.remove('sure')
  }, 4000)
}

document.addEventListener('submit', (event) => {
  const form = event.target
  if (!('publish' in form.dataset)) return
  event.preventDefault()
  const { kind, namespace, name } = Object.fromEntries(new FormData(form))
  void act({ act: 'publish', object: [kind, namespace || null, name] })
})

document.addEventListener('change', ({ target }) => {
  const form = target.closest('[data-filters]')
  if (form && target.matches('select, [type=checkbox]')) form.requestSubmit()
})
