import { toGet } from '#console/access'
import { type FieldChange, namespacedName, type Outcome } from '#contracts'
import { failureText } from '#inspect'
import { type Html, html } from '../html.ts'
import { type Ask, NotFoundError, type Page, primaries } from './page.ts'
import { badge, changes, empty, kindPart, namespaceIn, objectPath, runPath, section } from './parts.ts'
import { kindsSeen, maySee } from './record-kinds.ts'

/** Has the shape that `fairlead run --dry-run -o json` prints. */
interface Preview {
  outcome?: Outcome
  would: ({ would: string } & Partial<{
    kind: string
    namespace: string
    name: string
    differences: FieldChange[]
    effect: string
    reason: string
    message: string
  }>)[]
  finish: { kind: 'done' | 'requeue' | 'error' | 'terminal'; at?: string; message?: string }
}

const ENDS: Record<Preview['finish']['kind'], Html> = {
  done: badge('good', 'would end: nothing left to do'),
  requeue: badge('good', 'would end, and run again later'),
  error: badge('bad', 'would fail, and be tried again'),
  terminal: badge('bad', 'would fail for good'),
}

/** What a run of the function on disk would do for the object now. It writes nothing. */
export async function previewPage(ask: Ask): Promise<Page> {
  const [reconciler = '', place = '', name = ''] = ask.params
  const namespace = namespaceIn(place)
  const kind = (await primaries(ask)).get(reconciler)
  const { preview } = ask.abilities
  if (preview === undefined || kind === undefined || !(await ask.may(toGet(kind, namespace, name))))
    throw new NotFoundError('there is nothing to preview: start the console with -f FILE, the module of the function')
  const { outcome, would, finish } = (await preview(reconciler, namespace, name)) as Preview
  const called = namespacedName({ namespace, name })
  const steps = would.map(
    (step) =>
      html`<div class="write"><p><span class="verb">${step.would}</span> ${step.kind ?? step.effect ?? step.reason} <bdi>${step.namespace !== undefined && `${step.namespace}/`}${step.name}</bdi> ${step.message}</p>${changes(step.differences ?? [])}</div>`,
  )
  return {
    title: `Preview of ${reconciler} ${called}`,
    section: 'none',
    head: html`<p class="crumb">Preview of ${reconciler}</p><h1><a href="${objectPath(kindPart(kind), namespace, name)}"><bdi>${called}</bdi></a></h1>
<p class="verdict">${ENDS[finish.kind]} ${finish.message !== undefined && html`<span class="error">${finish.message}</span>`}${finish.at !== undefined && html`<code>${finish.at}</code>`}</p><p class="dim">Nothing was written. Reload to look again.</p>`,
    regions: {
      would: section(
        'It would write',
        steps.length === 0
          ? empty('Nothing would be written.', 'Every object is as the function wants it.')
          : html`${steps}`,
      ),
      outcome: section(
        'The function returned',
        outcome === undefined
          ? html`<p class="dim">It was not called, or threw.</p>`
          : html`<pre>${JSON.stringify(outcome, null, 2)}</pre>`,
      ),
    },
  }
}

/** Has the shape that `fairlead replay -o json` prints. */
interface Replayed {
  isSame: boolean
  calls: { call: number; differences: FieldChange[]; unstable: string[]; is: { error?: string; place?: string } }[]
  leftOut: string[]
}

/** A recorded run on the function on disk: what it would decide otherwise. */
export async function replayPage(ask: Ask): Promise<Page> {
  const sequence = Number(ask.params[0])
  const run = await ask.data.run(sequence)
  const { replay } = ask.abilities
  if (run === undefined || replay === undefined || !(await maySee(ask, run)) || !(await kindsSeen(ask, run.record)).all)
    throw new NotFoundError('there is nothing to replay: start the console with -f FILE, the module of the function')
  const [{ isSame, calls, leftOut }] = (await replay(sequence)) as [Replayed]
  return {
    title: `Replay of run ${sequence}`,
    section: 'runs',
    head: html`<p class="crumb">Replay</p><h1><a href="${runPath(sequence)}">Run ${sequence}</a></h1>
<p class="verdict">${isSame ? badge('good', 'decides as it did') : badge('bad', 'decides otherwise than it did')}</p>`,
    regions: {
      calls: section(
        'Calls',
        calls.length === 0
          ? empty(
              'Nothing can be compared.',
              'The run did not call the function, or its record leaves out the outcomes.',
            )
          : html`<ol class="laps">${calls.map(({ call, differences, unstable, is }) => html`<li><p class="call">Call ${call}: ${differences.length + unstable.length === 0 ? 'as it was' : 'other than it was'}</p>${is.error !== undefined && html`<p class="error">fails now: ${failureText(is)}</p>`}${changes(differences)}${unstable.map((path) => html`<p><code>${path}</code> differs between two calls on the same input</p>`)}</li>`)}</ol>`,
      ),
      left: html`<p class="dim">Left out of the record: ${leftOut.join('; ')}</p>`,
    },
  }
}
