import type { StoredMessage } from '#jetstream'
import { errorFrom, recordFrom, tokenFrom } from './codec.ts'
import type { Core } from './core.ts'
import type { Entry } from './types.ts'

/** Records first, then tokens. What changes while it is read may be missing or show twice. */
export async function* listEntries(core: Core, fn: string | undefined): AsyncGenerator<Entry> {
  const { js, names } = core
  for await (const message of js.scan(names.stream, names.all('key', fn))) {
    const entry = recordEntry(core, message)
    if (entry) yield entry
  }
  for await (const message of js.scan(names.stream, names.all('work', fn))) {
    const entry = tokenEntry(core, message)
    if (entry) yield entry
  }
}

function tokenEntry({ names, clock }: Core, message: StoredMessage): Entry | undefined {
  const place = names.placeOf(message.subject)
  if (place?.kind !== 'token') return undefined
  const { fn, key, lane } = place
  const { attempt } = tokenFrom(message, lane)
  return { state: 'queued', fn, key, lane, attempt, since: clock.dateOf(message.storedAt), ...errorFrom(message) }
}

function recordEntry({ names, clock }: Core, message: StoredMessage): Entry | undefined {
  const place = names.placeOf(message.subject)
  const record = recordFrom(message, names)
  if (place?.kind !== 'record' || record === undefined) return undefined
  const { lane, attempt, state, owner, dirty, otherLaneWaits } = record
  const since = clock.dateOf(record.since)
  const at = clock.dateOf(record.at)
  const common = { fn: place.fn, key: place.key, lane, attempt, since, ...errorFrom(message) }
  switch (state) {
    case 'running':
      return { ...common, state, owner, leaseUntil: at, dirty: dirty || otherLaneWaits }
    case 'waiting':
      return { ...common, state, until: at, reason: record.reason === 'Error' ? 'Error' : 'Requeue' }
    case 'parked':
      return { ...common, state, reason: 'Terminal' }
  }
}
