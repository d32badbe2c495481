import type { StoredMessage } from '#nats'
import type { QueueDeps } from './core.ts'
import { type KeyRecord, LANES, type Lane, withCauses } from './record.ts'
import type { Backlog, Depth, Entry, KeyOf } from './types.ts'
import { errorFrom, namespaceOf, recordFrom, tokenFrom } from './wire.ts'

const STATES = ['running', 'waiting', 'parked'] as const

/** Lists records first, then tokens. An entry that changes during the listing may be missing or appear twice. */
export async function* listEntries(
  deps: QueueDeps,
  { reconciler, states }: { reconciler?: string; states?: readonly Entry['state'][] },
): AsyncGenerator<Entry> {
  const { js, names } = deps
  const wanted = STATES.filter((state) => states?.includes(state) ?? true)
  // Timers that an earlier version has put to sleep are in other places until the janitor has found them.
  const filters = wanted.includes('waiting')
    ? [names.all('key', reconciler)]
    : wanted.map((state) => names.recordsIn(reconciler, state))
  for (const filter of filters)
    for await (const message of js.scan(names.stream, filter)) {
      const entry = recordEntry(deps, message)
      if (entry && wanted.some((state) => state === entry.state)) yield entry
    }
  if (states !== undefined && !states.includes('queued')) return
  const counts = new Map<string, number>()
  const counted = (line: string): number => {
    const count = (counts.get(line) ?? 0) + 1
    counts.set(line, count)
    return count
  }
  for await (const message of js.scan(names.stream, names.all('work', reconciler))) {
    const place = names.placeOf(message.subject)
    if (place?.kind !== 'token') continue
    const line = `${place.reconciler} ${place.lane}`
    const position = counted(line)
    const namespace = namespaceOf(place.key)
    const positionInNamespace = namespace === undefined ? position : counted(`${line} ${namespace}`)
    yield { ...tokenEntry(deps, message, place), position, positionInNamespace }
  }
}

/** Returns all entries of one key: none while it is idle. */
export async function entriesOf(deps: QueueDeps, { reconciler, key }: KeyOf): Promise<Entry[]> {
  const { js, names } = deps
  const record = await js.lastOf(names.stream, names.records(reconciler, key))
  const entries = [record && recordEntry(deps, record)]
  for (const lane of LANES) {
    const message = await js.lastOf(names.stream, names.token(reconciler, lane, key))
    if (message === undefined) continue
    const position = await placeAmong(deps, names.tokensOf(reconciler, lane), message.sequence)
    const namespace = namespaceOf(key)
    const positionInNamespace =
      namespace === undefined
        ? position
        : await placeAmong(deps, names.tokensIn(reconciler, lane, namespace), message.sequence)
    entries.push({ ...tokenEntry(deps, message, { reconciler, key, lane }), position, positionInNamespace })
  }
  return entries.filter((entry) => entry !== undefined)
}

async function placeAmong({ js, names }: QueueDeps, subjects: string, sequence: number): Promise<number> {
  const all = await js.count(names.stream, subjects)
  const notBefore = await js.count(names.stream, subjects, sequence)
  return Math.max(1, all.count - notBefore.count + 1)
}

function tokenEntry(
  { clock }: QueueDeps,
  message: StoredMessage,
  { reconciler, key, lane }: KeyOf & Pick<Entry, 'lane'>,
) {
  const { attempt, causes, cutShort } = tokenFrom(message, lane)
  const since = clock.dateOf(message.storedAt)
  return {
    state: 'queued' as const,
    reconciler,
    key,
    lane,
    attempt,
    since,
    ...errorFrom(message),
    ...withCauses(causes),
    ...(cutShort && { cutShort: true as const }),
  }
}

function recordEntry({ names, clock }: QueueDeps, message: StoredMessage): Entry | undefined {
  const place = names.placeOf(message.subject)
  const record = recordFrom(message, names)
  if (place?.kind !== 'record' || record === undefined) return undefined
  const { lane, attempt, state, owner, by, dirty, otherLaneWaits } = record
  const since = clock.dateOf(record.since)
  const at = clock.dateOf(record.at)
  const common = { reconciler: place.reconciler, key: place.key, lane, attempt, since, ...errorFrom(message) }
  switch (state) {
    case 'running': {
      const cutShort = record.reason === 'CutShort' && { cutShort: true as const }
      const who = { owner, ...(by !== undefined && { by }), ...cutShort }
      return { ...common, ...withCauses(record.causes), state, ...who, leaseUntil: at, dirty: dirty || otherLaneWaits }
    }
    case 'waiting':
      return { ...common, state, until: at, reason: waitsBecause(record) }
    case 'parked':
      return { ...common, state, reason: record.reason === 'Withdrawn' ? 'Withdrawn' : 'Terminal' }
  }
}

const waitsBecause = ({ reason }: KeyRecord) => (reason === 'Error' || reason === 'CutShort' ? reason : 'Requeue')

/*
 * The server counts and sends a few small answers, whatever the depth, so every scrape of the metrics can ask. With
 * more than one replica, the counts may be a moment old.
 */

export async function depthOf({ js, names }: QueueDeps, reconciler: string): Promise<Depth> {
  const count = async (subject: string) => (await js.count(names.stream, subject)).count
  const [queued, records, running, parked] = await Promise.all([
    count(names.all('work', reconciler)),
    count(names.all('key', reconciler)),
    count(names.recordsIn(reconciler, 'running')),
    count(names.recordsIn(reconciler, 'parked')),
  ])
  return { queued, running, waiting: Math.max(0, records - running - parked), parked }
}

export async function backlogOf({ js, names, clock }: QueueDeps, reconciler: string): Promise<Backlog> {
  const tokens = (lane: Lane) => js.count(names.stream, names.tokensOf(reconciler, lane))
  const [high, low] = await Promise.all([tokens('high'), tokens('low')])
  const oldest = [high, low].flatMap((lane) => lane.oldest?.storedAt ?? [])
  return {
    lanes: { high: high.count, low: low.count },
    oldest: oldest.length === 0 ? undefined : clock.dateOf(Math.min(...oldest)),
  }
}
