import { setTimeout as sleep } from 'node:timers/promises'
import type { KubeObject } from '#contracts'
import { startFairlead } from '../../support/fairlead.ts'
import { startTestNats } from '../../support/servers.ts'
import { quantile } from '../median.ts'
import type { Figures, Scene } from './scenes.ts'
import { MODULE } from './sides.ts'
import { pathOf } from './writes.ts'

const OBJECTS = 60
const PER_SECOND = 20
/** A run that its object has not followed by then is late. */
const LATE_MS = 2000
const LONGEST_MS = 20_000
/** Turns until runs follow in time. */
const MOST_WARM = 30

interface Ticked extends KubeObject {
  status?: { tick?: string }
}

/**
 * Runs of the function while all processes of the webhook are there, and while none is. Half of the objects have been written
 * in the other version before. An operator has its webhook in the process of its controllers, so its runs end with it.
 */
export async function away({ side, place, replicas, sites, seconds, say }: Scene): Promise<Figures> {
  if (side !== 'Fairlead') return {}
  const { kube, kubeconfig } = place
  await replicas.alone()
  await sites.create(OBJECTS)
  const names = sites.names.slice(0, OBJECTS)
  for (const name of names.slice(0, OBJECTS / 2))
    await kube.patch(pathOf('Site', 'v1beta1', name), { spec: { most: 5 } }, 'merge')
  await using nats = await startTestNats()
  await using _up = startFairlead(['up', '--function', MODULE], {
    KUBECONFIG: kubeconfig,
    NATS_URL: nats.url,
    LOG_LEVEL: 'warn',
  })
  const stop = new AbortController()
  const waiting = new Map<string, () => void>()
  const watching = follow(kube, stop.signal, (name, tick) => waiting.get(`${name} ${tick}`)?.())
  const ticked = async (name: string, tick: string): Promise<number> => {
    const { promise, resolve } = Promise.withResolvers<void>()
    waiting.set(`${name} ${tick}`, resolve)
    await kube.patch(pathOf('Site', 'v1', name), { metadata: { labels: { tick } } }, 'merge')
    const began = performance.now()
    await Promise.race([promise, sleep(LONGEST_MS, undefined, { ref: false })])
    return performance.now() - began
  }
  const phase = async (title: string, ticks: number): Promise<number[]> => {
    const open: Promise<number>[] = []
    for (let tick = 0; tick < ticks; tick++) {
      open.push(ticked(names[tick % names.length] ?? '', `${title}-${tick}`))
      await sleep(1000 / PER_SECOND)
    }
    return Promise.all(open)
  }
  // It first runs all objects that other scenes have left.
  for (let turn = 1; Math.max(...(await phase(`warm-${turn}`, OBJECTS))) > LATE_MS; turn++)
    if (turn === MOST_WARM)
      throw new Error(`runs do not follow within ${LATE_MS} ms, after ${turn} turns of ${OBJECTS}`)
  const there = await phase('there', seconds * PER_SECOND)
  await replicas.kill()
  const gone = await phase('gone', seconds * PER_SECOND)
  await replicas.alone()
  stop.abort()
  await watching
  const late = gone.filter((ms) => ms > LATE_MS).length
  say(`${gone.length} runs while the webhook was away, the longest after ${Math.max(...gone).toFixed(0)} ms`)
  return { thereP99: quantile(there, 0.99), awayP99: quantile(gone, 0.99), late }
}

async function follow(
  kube: Scene['place']['kube'],
  signal: AbortSignal,
  seen: (name: string, tick: string) => void,
): Promise<void> {
  while (!signal.aborted)
    try {
      for await (const { type, object } of kube.watch<Ticked>(pathOf('Site', 'v1'), { signal }))
        if (type === 'ADDED' || type === 'MODIFIED') seen(object.metadata.name, object.status?.tick ?? '')
    } catch {
      await sleep(100)
    }
}
