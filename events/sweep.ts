import type { RunLog } from '#contracts'
import type { JetStream } from '#jetstream'
import { forEachAtMost } from '#primitives'
import { persist } from './persist.ts'
import type { StreamNames } from './stream.ts'
import type { Identity } from './types.ts'

interface Swept {
  /** Messages with a higher sequence stay. */
  upTo: number
  /** Called for each object, because a Reconciler for it may be created during the sweep. */
  keeps: (namespace: string | undefined) => boolean
  signal: AbortSignal
}

const AT_ONCE = 64

/** Deletes the messages of these objects by sequence, so that a message that replaces one at the same time stays. */
export async function sweep(
  { js, names, log }: { js: JetStream; names: StreamNames; log: RunLog },
  identities: AsyncIterable<Identity>,
  { upTo, keeps, signal }: Swept,
): Promise<number> {
  const swept = sequencesOf(identities, { upTo, keeps, signal })
  return forEachAtMost(AT_ONCE, swept, (sequence) => persist(() => js.remove(names.stream, sequence), { signal, log }))
}

async function* sequencesOf(
  identities: AsyncIterable<Identity>,
  { upTo, keeps, signal }: Swept,
): AsyncGenerator<number> {
  for await (const { sequence, key } of identities) {
    signal.throwIfAborted()
    if (sequence <= upTo && !keeps(key.namespace)) yield sequence
  }
}
