import { toList } from '#console/access'
import { resourceName } from '#contracts'
import type { StoredEvent } from '#events'
import { html } from '../html.ts'
import { type Ask, type Page, permitted } from './page.ts'
import { ago, badge, choice, empty, field, given, kindPart, objectPath, type Tone, table } from './parts.ts'

const VERBS: Record<StoredEvent['verb'], Tone> = { added: 'good', modified: 'busy', deleted: 'bad', moved: 'idle' }
const SHOWN = 150

/** Changes of the cluster, as bridges and runs store them. */
export async function eventsPage(ask: Ask): Promise<Page> {
  const { url, abilities } = ask
  const [kind, namespace, verb, name] = ['kind', 'namespace', 'verb', 'name'].map((one) => given(url, one))
  const latest = await ask.data.events.latest()
  const kinds = [...new Set(latest.map(({ ref }) => kindPart(ref)))].sort()
  const matching = latest.filter(
    (event) =>
      (kind === undefined || kindPart(event.ref) === kind) &&
      (namespace === undefined || event.namespace === namespace) &&
      (verb === undefined ? event.verb !== 'moved' : event.verb === verb) &&
      (name === undefined || event.name.includes(name)),
  )
  const seen = await permitted(ask, matching, ({ ref, namespace: where }) => toList(ref, where))
  const rows = seen
    .slice(0, SHOWN)
    .map((event) => [
      ago(event.time, ask.now),
      badge(VERBS[event.verb], event.verb),
      html`<code title="${resourceName(event.ref)}">${event.kind}</code>`,
      html`<a href="${objectPath(kindPart(event.ref), event.namespace, event.name)}"><bdi>${event.namespace !== undefined && `${event.namespace}/`}${event.name}</bdi></a>`,
      event.resourceVersion,
      html`${event.writtenBy === undefined ? html`<span class="dim">the watch</span>` : html`a run of <code>${event.writtenBy}</code>`}`,
    ])
  const publish =
    abilities.writes &&
    abilities.publish !== undefined &&
    html`<details class="publish"><summary>Publish an event</summary><p class="dim">Stores the event of an object that the API server has, as a bridge would. EVENTS has it already if a bridge is up.</p>
<form class="filters" data-publish>${field('Kind', 'kind', undefined, 'deployments.apps')}${field('Namespace', 'namespace', undefined, 'default')}${field('Name', 'name', undefined)}<button>Publish</button></form></details>`
  return {
    title: 'Events',
    section: 'events',
    everyMs: 400,
    head: html`<h1>Events</h1><form class="filters" data-filters action="/events">
${choice('Kind', 'kind', kind !== undefined && !kinds.includes(kind) ? [kind, ...kinds] : kinds, kind)}
${choice('Change', 'verb', Object.keys(VERBS), verb)}${field('Namespace', 'namespace', namespace)}${field('Name contains', 'name', name)}<button>Show</button></form>${publish}`,
    regions: {
      events:
        rows.length === 0
          ? empty(
              'Nothing has changed lately.',
              'Changes of the resources that Reconcilers name stand here as they come.',
            )
          : html`<section>${table(
              'Changes of the cluster, the newest first',
              ['When', 'Change', 'Kind', 'Object', 'Version', 'Stored by'],
              rows,
            )}</section>`,
    },
  }
}
