import { setTimeout as sleep } from 'node:timers/promises'
import type { KubeObject } from '#contracts'
import { At } from '#functions/at'
import { resourcePath } from '#kube'
import { forEachAtMost } from '#primitives'
import { playNode } from '../../support/node-player.ts'
import type { Life } from './life.ts'

const AT_ONCE = 32
const LONGEST_MS = 60_000
const LONGEST_MS_EACH = 60

export interface PlannedAt {
  name: string
  /** Epoch milliseconds, whole seconds. */
  due: number
  /** Not created before, epoch milliseconds; left out: at once. */
  createAt?: number
}

/** Epoch milliseconds, as the watch of the bench has seen it. */
export interface LivedAt {
  due: number
  sent: number
  pending?: number
  done?: number
  pods: number[]
}

/** Creates Ats, ends their pods as soon as they exist, and follows them until all are DONE. */
export async function live(
  life: Life,
  plan: readonly PlannedAt[],
  meanwhile?: () => Promise<void>,
): Promise<LivedAt[]> {
  const { kube, namespace } = life
  const path = resourcePath(At, namespace)
  const lived = new Map<string, LivedAt>(plan.map(({ name, due }) => [name, { due, sent: 0, pods: [] }]))
  const stop = new AbortController()
  const pods = await playNode(kube, namespace, stop.signal)
  const allDone = Promise.withResolvers<void>()
  const following = follow()
  const acting = meanwhile?.()
  await forEachAtMost(AT_ONCE, plan, async ({ name, due, createAt = 0 }) => {
    await sleep(Math.max(0, createAt - Date.now()))
    const schedule = new Date(due).toISOString().replace(/\.\d+/, '')
    const at = lived.get(name)
    if (at) at.sent = Date.now()
    await kube.create(path, At.of({ metadata: { name }, spec: { schedule, command: 'echo YAY' } }))
  })
  const lastDue = Math.max(Date.now(), ...plan.map(({ due }) => due))
  const enough = lastDue - Date.now() + LONGEST_MS + LONGEST_MS_EACH * plan.length
  await Promise.race([allDone.promise, sleep(enough, undefined, { ref: false, signal: stop.signal })])
  await acting
  stop.abort()
  await following
  for (const { owner, seenAt } of pods.values()) lived.get(owner ?? '')?.pods.push(seenAt)
  return [...lived.values()]

  /** The server ends watches that it cannot serve in time. */
  async function follow(): Promise<void> {
    const left = new Set(lived.keys())
    while (left.size > 0 && !stop.signal.aborted) await watch(left).catch(() => undefined)
    allDone.resolve()
  }

  async function watch(left: Set<string>): Promise<void> {
    for await (const { type, object } of kube.watch<KubeObject & { status?: { phase?: string } }>(path, stop)) {
      if (type === 'BOOKMARK') continue
      const at = lived.get(object.metadata.name)
      const phase = object.status?.phase
      if (at && phase === 'PENDING') at.pending ??= Date.now()
      if (!at || phase !== 'DONE') continue
      at.done ??= Date.now()
      left.delete(object.metadata.name)
      if (left.size === 0) return
    }
  }
}

/** Pods that are missing, or that are more than one of an At, or too early; Ats that are not DONE. */
export const wrongOf = (ats: readonly LivedAt[]): number =>
  ats.filter(({ pods, due, done }) => pods.length !== 1 || (pods[0] ?? 0) < due || done === undefined).length
