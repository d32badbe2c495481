import type { RunLog, Runnable } from '#contracts'
import { type DeadMessage, deadKey } from '#events'
import { isNotFound, type KubeClient, resourcePath } from '#kube'
import { repeat, unlessAborted } from '#primitives'
import type { Entry, WorkQueue } from '#queue'
import { RECONCILERS, shardOf } from '#spec'
import type { OrphanedKeys } from './types.ts'

export interface OrphanedKeysOptions {
  kube: Pick<KubeClient, 'list'>
  queue: Pick<WorkQueue, 'stream' | 'reconcilers' | 'list' | 'purge' | 'enqueue' | 'declare' | 'removeConsumers'>
  deadLetter: (dead: DeadMessage) => Promise<void>
  /** The shard of this process. Keys of Reconcilers that other shards serve are removed without a dead letter. Left out: none. */
  shard?: string
  /** The keys that must not be removed. Left out: none. */
  orphans?: OrphanedKeys
  log: RunLog
  /** How long a Reconciler must be gone before its keys are removed. Default 5 min. */
  absentMs?: number
  everyMs?: number
  /** The time limit for one key. Default 5 s. */
  keyMs?: number
}

const ABSENT_MS = 300_000
const EVERY_MS = 60_000
const KEY_MS = 5000

/**
 * Moves the keys of deleted Reconcilers to the dead letters, and removes the keys of Reconcilers that have moved to
 * another shard, which enqueues each of their objects. So does a Reconciler that is created again.
 */
export function createOrphanedKeySweeper(options: OrphanedKeysOptions): Runnable {
  const { log, shard = '', absentMs = ABSENT_MS, everyMs = EVERY_MS } = options
  const absentSince = new Map<string, number>()
  const look = async (signal: AbortSignal) => {
    const shards = await shardsByName(options.kube)
    for (const reconciler of await options.queue.reconcilers()) {
      const isGone = shards.get(reconciler) !== shard
      if (!isGone) absentSince.delete(reconciler)
      const since = absentSince.get(reconciler) ?? performance.now()
      if (isGone) absentSince.set(reconciler, since)
      if (!isGone || performance.now() - since < absentMs) continue
      await removeKeys(options, reconciler, { hasMoved: shards.has(reconciler) }, signal)
      if (await removeConsumersIfEmpty(options, reconciler)) absentSince.delete(reconciler)
    }
  }
  const failed = (error: unknown) => {
    // If the cluster has no Reconciler resource, the watch of it reports that.
    if (!isNotFound(error)) log.warn({ err: error }, 'keys of Reconcilers that are gone could not be looked for')
  }
  return { run: (signal) => repeat(() => look(signal), { signal, everyMs, failed }) }
}

/**
 * Returns the shard of each Reconciler, by name, from the API server itself: before keys are removed, the Registry of
 * this process may be behind that of another bridge, which enqueues keys of a Reconciler that was created again. Rejects
 * if the resource itself is not served, because that proves nothing about its objects.
 */
async function shardsByName(kube: OrphanedKeysOptions['kube'], fieldSelector?: string): Promise<Map<string, string>> {
  const shards = new Map<string, string>()
  for await (const { items } of kube.list(resourcePath(RECONCILERS), { fieldSelector }))
    for (const object of items) shards.set(object.metadata.name, shardOf(object))
  return shards
}

/**
 * Purges a key only after its dead letter is stored. A Reconciler that is created again at the same time may enqueue
 * the key on the old token, which is purged. So each purge is followed by a check. If the check finds the Reconciler,
 * the key is enqueued again; if the Reconciler is created after the check, it enqueues the key itself. If the process
 * is killed between the purge and the check, this one key waits for its next change or resync, and is in the dead
 * letters.
 */
async function removeKeys(
  options: OrphanedKeysOptions,
  reconciler: string,
  { hasMoved }: { hasMoved: boolean },
  signal: AbortSignal,
): Promise<void> {
  const { queue, log } = options
  let deadLettered = 0
  for await (const entry of queue.list({ reconciler })) {
    signal.throwIfAborted()
    const orphaned = options.orphans?.stateOf(reconciler, entry.key)
    if (entry.state === 'running' || orphaned === 'waits') continue
    // An object that no longer waits for the finalizer needs no dead letter.
    const isLetter = !hasMoved && orphaned !== 'released'
    if (await isTakenAway(options, entry, isLetter, signal)) deadLettered += Number(isLetter)
    if (await mayBeBack(options, reconciler)) {
      await unlessAborted(
        queue.enqueue(reconciler, entry.key, { lane: 'low', cause: 'its Reconciler is back' }),
        signal,
      )
      log.info({ reconciler, keys: deadLettered }, 'this Reconciler may be back: no more of its keys go to DEAD')
      return
    }
  }
  if (deadLettered > 0) log.warn({ reconciler, keys: deadLettered }, 'this Reconciler is gone: its keys are in DEAD')
}

/**
 * Returns false if the time was not sufficient. The other keys do not wait for this one, and the next pass tries it
 * again.
 */
async function isTakenAway(
  { queue, deadLetter, log, keyMs = KEY_MS }: OrphanedKeysOptions,
  entry: Entry,
  isLetter: boolean,
  signal: AbortSignal,
): Promise<boolean> {
  const inTime = AbortSignal.any([signal, AbortSignal.timeout(keyMs)])
  const { reconciler, key } = entry
  const letter = deadKey({ ...entry, stream: queue.stream, reason: 'unknown-reconciler', detail: detailOf(entry) })
  try {
    if (isLetter) await unlessAborted(deadLetter(letter), inTime)
    await unlessAborted(queue.purge(entry, inTime), inTime)
    return true
  } catch (error) {
    signal.throwIfAborted()
    log.warn({ err: error, reconciler, key }, 'a key of a Reconciler that is gone stays in WORK until the next try')
    return false
  }
}

/**
 * Deletes the consumers of a queue last: they hold no keys, but the queue is found only by its consumers. They are
 * declared again if a key was enqueued meanwhile. If the process is killed in between, such a key stays in WORK until
 * the Reconciler is created again.
 */
async function removeConsumersIfEmpty(options: OrphanedKeysOptions, reconciler: string): Promise<boolean> {
  const { queue, orphans, log } = options
  const isHeld = () => orphans?.isHeld(reconciler) ?? false
  const mustStay = async () => isHeld() || !(await isEmpty(queue, reconciler)) || (await mayBeBack(options, reconciler))
  if (await mustStay()) return false
  await queue.removeConsumers(reconciler)
  if (await mustStay()) {
    await queue.declare(reconciler)
    return false
  }
  log.info({ reconciler }, 'this Reconciler is gone: its consumers are deleted')
  return true
}

async function isEmpty(queue: OrphanedKeysOptions['queue'], reconciler: string): Promise<boolean> {
  for await (const _ of queue.list({ reconciler, limit: 1 })) return false
  return true
}

/** Whether the Reconciler may be in this shard again. A check that fails counts as yes. */
const mayBeBack = ({ kube, shard = '' }: OrphanedKeysOptions, reconciler: string): Promise<boolean> =>
  shardsByName(kube, `metadata.name=${reconciler}`).then(
    (shards) => shards.get(reconciler) === shard,
    () => true,
  )

const detailOf = ({ reconciler, state, error }: Entry): string =>
  `there is no Reconciler ${reconciler}; the key was ${state}${error === undefined ? '' : `, its last run failed: ${error}`}`
