import { setTimeout as sleep } from 'node:timers/promises'
import type { KubeClient } from '#kube'
import { type Replicas, rotate, type WebhookPlace } from '../../bench/webhooks/place.ts'
import { until } from '../../support/wait.ts'
import type { Fault } from './judge.ts'
import { pathOf } from './pages.ts'

/** From the end of a fault to the next one. */
const REST_MS = 15_000
const AWAY_MS = 5000

interface Scene {
  place: WebhookPlace
  replicas: Replicas
}

/** What a cluster does to a webhook. `mayRefuse`: no webhook could answer, or no API server. */
const FAULTS: Record<string, { mayRefuse: boolean; happens: (scene: Scene) => Promise<unknown> }> = {
  'kill -9 of a process': {
    mayRefuse: true,
    async happens({ replicas }) {
      await replicas.kill()
      await sleep(AWAY_MS)
      await replicas.add()
    },
  },
  'rolling update': { mayRefuse: false, happens: ({ replicas }) => replicas.replaceAll() },
  'another certificate': { mayRefuse: false, happens: ({ place }) => rotate(place, 'leaf') },
  'another authority': { mayRefuse: false, happens: ({ place }) => rotate(place, 'authority') },
  'end of the API server': { mayRefuse: true, happens: ({ place }) => place.restartApiServer('SIGTERM') },
  'kill -9 of the API server': { mayRefuse: true, happens: ({ place }) => place.restartApiServer('SIGKILL') },
  'all processes away': {
    mayRefuse: true,
    async happens({ replicas }) {
      const count = replicas.processes.length
      await replicas.kill(count)
      await sleep(AWAY_MS)
      for (let index = 0; index < count; index++) await replicas.add()
    },
  },
}

interface Told {
  /** One line. */
  say: (line: string) => void
  /** Something that must not be. */
  wrong: (what: string) => void
}

/** One fault after the other until aborted: all of them in a random order, then all again. */
export async function faultsUntil(
  signal: AbortSignal,
  scene: Scene,
  random: () => number,
  { say, wrong }: Told,
): Promise<Fault[]> {
  const had: Fault[] = []
  for (let round: string[] = []; !signal.aborted; ) {
    if (round.length === 0) round = shuffled(Object.keys(FAULTS), random)
    const title = round.pop()
    const fault = FAULTS[title ?? '']
    if (title === undefined || fault === undefined) continue
    const from = performance.now()
    try {
      await fault.happens(scene)
      await converts(scene.place.kube)
    } catch (error) {
      wrong(`${title}: ${error}`)
    }
    const to = performance.now()
    had.push({ title, from, to, mayRefuse: fault.mayRefuse })
    say(`${title}, ${((to - from) / 1000).toFixed(0)} s`)
    await sleep(REST_MS, undefined, { signal }).catch(() => undefined)
  }
  return had
}

/** Resolves when both versions can be read. */
const converts = (kube: KubeClient): Promise<unknown> =>
  until(() => Promise.all([kube.get(pathOf('v1', 'page-0')), kube.get(pathOf('v1beta1', 'page-0'))]))

const shuffled = (all: readonly string[], random: () => number): string[] =>
  all
    .map((one) => ({ one, at: random() }))
    .sort((a, b) => a.at - b.at)
    .map(({ one }) => one)
