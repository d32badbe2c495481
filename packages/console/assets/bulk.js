import { $, $$ } from './dom.js'
import { selection } from './selection.js'

const number = (count) => count.toLocaleString('en')

/** Acts on the selected keys: a thousand keys per request, until none is left, a request fails, or Stop is pressed. */
export async function actOnSelection(which, act, say) {
  const bar = $('[data-bulk]')
  const stop = $('[data-stop]', bar)
  const buttons = $$('button', bar).filter((button) => button !== stop)
  const wanted = { act: which, ...selection.wanted() }
  const total = {}
  const counted = () =>
    Object.entries(total)
      .map(([word, count]) => `${number(count)} ${word}`)
      .join(', ')
  const stopped = new AbortController()
  stop.addEventListener('click', () => stopped.abort(), { once: true })
  stop.hidden = wanted.matching === undefined
  for (const button of buttons) button.disabled = true
  let answer
  do {
    answer = await act({ ...wanted, after: answer?.next })
    if (answer === undefined) {
      if (counted() !== '') say(`${$('#report').textContent} Before that: ${counted()}.`)
      break
    }
    for (const [word, count] of Object.entries(answer.counts ?? {})) total[word] = (total[word] ?? 0) + count
    const done = counted() === '' ? answer.say : `${answer.say.split(':')[0]}: ${counted()}`
    const left =
      answer.next === undefined ? '' : `; ${stopped.signal.aborted ? 'stopped, ' : ''}${number(answer.left)} left`
    say(`${done}${left}`)
    document.dispatchEvent(new Event('fairlead:rows'))
  } while (answer.next !== undefined && !stopped.signal.aborted)
  for (const button of buttons) button.disabled = false
  stop.hidden = true
  if (answer !== undefined) selection.none()
}
