import { setTimeout as sleep } from 'node:timers/promises'
import type { RunLog } from '#contracts'
import { type DeadMessage, deadKey } from '#events'
import { isNotFound, type KubeClient, resourcePath } from '#kube'
import type { Entry, WorkQueue } from '#queue'
import { RECONCILERS } from '#spec'
import { unlessAborted } from './abort.ts'

export interface GoneOptions {
  kube: Pick<KubeClient, 'list'>
  queue: Pick<WorkQueue, 'stream' | 'functions' | 'list' | 'purge' | 'enqueue' | 'declare' | 'retire'>
  bury: (dead: DeadMessage) => Promise<void>
  log: RunLog
  /** How long a Reconciler must be gone before its keys are given up. Default 5 min. */
  absentMs?: number
  everyMs?: number
  /** How long one key may take. Default 5 s. */
  keyMs?: number
}

const ABSENT_MS = 300_000
const EVERY_MS = 60_000
const KEY_MS = 5000

/**
 * Keys of a Reconciler that is gone wait for nobody: they go to the dead letters, until the signal. Should it come again,
 * each of its objects is enqueued anyhow.
 */
export async function buryGone(options: GoneOptions, signal: AbortSignal): Promise<void> {
  const { log, absentMs = ABSENT_MS, everyMs = EVERY_MS } = options
  const absentSince = new Map<string, number>()
  while (!signal.aborted) {
    try {
      const present = await presentNames(options.kube)
      for (const fn of await options.queue.functions()) {
        const isGone = !present.has(fn)
        if (!isGone) absentSince.delete(fn)
        const since = absentSince.get(fn) ?? performance.now()
        if (isGone) absentSince.set(fn, since)
        if (!isGone || performance.now() - since < absentMs) continue
        await buryKeys(options, fn, signal)
        if (await retireIfEmpty(options, fn)) absentSince.delete(fn)
      }
    } catch (error) {
      // That there are no Reconcilers at all, their watch says.
      if (!signal.aborted && !isNotFound(error))
        log.warn({ err: error }, 'keys of Reconcilers that are gone could not be looked for')
    }
    await sleep(everyMs, undefined, { signal }).catch(() => undefined)
  }
}

/** Rejects where the resource itself is not served: that says nothing of its objects. */
async function presentNames(kube: GoneOptions['kube'], fieldSelector?: string): Promise<Set<string>> {
  const names = new Set<string>()
  for await (const { items } of kube.list(resourcePath(RECONCILERS), { fieldSelector }))
    for (const { metadata } of items) names.add(metadata.name)
  return names
}

/**
 * Only what is kept among the dead is purged. What a Reconciler that comes back enqueues meanwhile may meet the old token
 * and go with it: so each purge is followed by a look. If that is of before it came, it enqueues the key after the
 * purge. A kill between the two leaves that one key to its next change or resync, and to the dead letters.
 */
async function buryKeys(options: GoneOptions, fn: string, signal: AbortSignal): Promise<void> {
  const { kube, queue, log } = options
  let buried = 0
  for await (const entry of queue.list({ fn })) {
    signal.throwIfAborted()
    if (entry.state === 'running') continue
    if (await isBuried(options, entry, signal)) buried++
    if (await mayBeBack(kube, fn)) {
      await unlessAborted(queue.enqueue(fn, entry.key, { lane: 'low' }), signal)
      log.info({ reconciler: fn, keys: buried }, 'this Reconciler may be back: no more of its keys go to DEAD')
      return
    }
  }
  if (buried > 0) log.warn({ reconciler: fn, keys: buried }, 'this Reconciler is gone: its keys are in DEAD')
}

/** False: not in time. The keys behind it do not wait for it, and the next pass tries it again. */
async function isBuried(
  { queue, bury, log, keyMs = KEY_MS }: GoneOptions,
  entry: Entry,
  signal: AbortSignal,
): Promise<boolean> {
  const inTime = AbortSignal.any([signal, AbortSignal.timeout(keyMs)])
  const { fn, key } = entry
  const letter = deadKey({ ...entry, stream: queue.stream, reason: 'unknown-reconciler', detail: detailOf(entry) })
  try {
    await unlessAborted(bury(letter), inTime)
    await unlessAborted(queue.purge(entry, inTime), inTime)
    return true
  } catch (error) {
    signal.throwIfAborted()
    log.warn({ err: error, reconciler: fn, key }, 'a key of a Reconciler that is gone stays in WORK until the next try')
    return false
  }
}

/**
 * Consumers hold nothing, but a queue is only found by them. So they go last, and are declared again for what was enqueued
 * meanwhile. A kill in between leaves such a key in WORK until the Reconciler comes back.
 */
async function retireIfEmpty({ kube, queue, log }: GoneOptions, fn: string): Promise<boolean> {
  const mustStay = async () => !(await isEmpty(queue, fn)) || (await mayBeBack(kube, fn))
  if (await mustStay()) return false
  await queue.retire(fn)
  if (await mustStay()) {
    await queue.declare(fn)
    return false
  }
  log.info({ reconciler: fn }, 'this Reconciler is gone: its consumers are deleted')
  return true
}

async function isEmpty(queue: GoneOptions['queue'], fn: string): Promise<boolean> {
  for await (const _ of queue.list({ fn, limit: 1 })) return false
  return true
}

/** A look that fails says nothing. */
const mayBeBack = (kube: GoneOptions['kube'], fn: string): Promise<boolean> =>
  presentNames(kube, `metadata.name=${fn}`).then(
    (names) => names.has(fn),
    () => true,
  )

const detailOf = ({ fn, state, error }: Entry): string =>
  `there is no Reconciler ${fn}; the key was ${state}${error === undefined ? '' : `, its last run failed: ${error}`}`
