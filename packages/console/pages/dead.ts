import { TO_LIST_DEAD } from '#console/access'
import { CODES, type DeadLetter, keyIn } from '#events'
import { textOf } from '#inspect'
import { oneLine } from '#process/exit'
import { type Html, html } from '../html.ts'
import { type Ask, NotFoundError, type Page } from './page.ts'
import { ago, badge, empty, facts, letterPath, section, table } from './parts.ts'

const DETAIL_CHARS = 160

/** Messages that cannot be read, and keys that no reconciler runs. */
export async function deadPage(ask: Ask): Promise<Page> {
  const letters = await lettersFor(ask)
  const rows = letters.map(({ id, diedAt, reconciler = '–', reason, subject, detail }) => [
    html`<a href="${letterPath(id)}">${id}</a>`,
    ago(diedAt, ask.now),
    reconciler,
    badge('bad', reason),
    html`<code>${subject}</code>`,
    oneLine(detail, DETAIL_CHARS),
    ...(ask.abilities.writes ? [replayButton(id)] : []),
  ])
  const head = ['ID', 'Died', 'Reconciler', 'Reason', 'Subject', 'Detail', ...(ask.abilities.writes ? [''] : [])]
  return {
    title: 'Dead letters',
    section: 'dead',
    everyMs: 1000,
    head: html`<h1>Dead letters</h1><p class="dim">Messages that cannot be read, and keys that no reconciler runs. They are kept for two weeks.</p>`,
    regions: {
      letters:
        rows.length === 0
          ? empty('Nothing is dead.', 'Every message could be read, and every key has a reconciler.')
          : html`<section>${table('Dead letters, the newest first', head, rows)}</section>`,
    },
  }
}

export async function letterPage(ask: Ask): Promise<Page> {
  const id = Number(ask.params[0])
  const letter = (await lettersFor(ask)).find((one) => one.id === id)
  if (letter === undefined) throw new NotFoundError(`there is no dead letter ${ask.params[0]}, or it has been replayed`)
  const { diedAt, storedAt, reconciler, reason, stream, subject, sequence, detail, headers } = letter
  return {
    title: `Dead letter ${id}`,
    section: 'dead',
    head: html`<p class="crumb">Dead letter</p><h1>${id}</h1>`,
    regions: {
      letter: html`${section(
        'What it is',
        facts([
          ['Died', html`${ago(diedAt, ask.now)} ago`],
          ['Reason', html`${badge('bad', reason)} <span class="dim">${CODES[reason]}</span>`],
          ['Detail', detail],
          ['Reconciler', reconciler ?? '–'],
          ['Stream', sequence === 0 ? stream : `${stream}, sequence ${sequence}`],
          ['Subject', html`<code>${subject}</code>`],
          ['Stored', html`${ago(storedAt, ask.now)} ago`],
        ]),
      )}${ask.abilities.writes && html`<p class="buttons">${replayButton(id)}</p>`}
${section('Headers', facts(Object.entries(headers).map(([name, value]) => [name, html`<code>${value}</code>`])))}
${keyIn(letter) === undefined && section('Body', html`<pre>${bodyOf(letter)}</pre>`)}`,
    },
  }
}

const replayButton = (id: number): Html =>
  html`<button type="button" data-act="replay" data-letter="${id}">Replay</button>`

async function lettersFor(ask: Ask): Promise<DeadLetter[]> {
  if (!(await ask.may(TO_LIST_DEAD)))
    throw new NotFoundError(
      'dead letters may be of any object: ask for the right to list reconcilers/dead in fairlead.dev',
    )
  return ask.data.letters()
}

const BODY_CHARS = 20_000

const bodyOf = ({ data }: DeadLetter): string =>
  (textOf(data) ?? Buffer.from(data.subarray(0, 512)).toString('hex')).slice(0, BODY_CHARS)
