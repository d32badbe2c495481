import { setTimeout as sleep } from 'node:timers/promises'
import type { KubeObject } from '#contracts'
import { objectFilter } from '#events'
import { type KubeClient, resourcePath } from '#kube'
import { follow, type JetStream } from '#nats'
import { CONFIG_MAPS, type Etcd } from './bridge-support.ts'

/** The namespace of objects that change at a steady rate. */
export const HOT_NAMESPACE = 'hot'
/** The annotation with the time of the change. */
export const SENT = 'bench/sent'
const IN_FLIGHT = 64

/** Writes a new version of an object, which contains the time of the change. */
export type Change = (name: string, sent: string) => Promise<unknown>

const hot = (name: string, sent: string): KubeObject => ({
  apiVersion: 'v1',
  kind: 'ConfigMap',
  metadata: { name, namespace: HOT_NAMESPACE, annotations: { [SENT]: sent } },
})

export const throughApiServer =
  (kube: KubeClient): Change =>
  (name, sent) =>
    kube
      .replace(resourcePath(CONFIG_MAPS, HOT_NAMESPACE, name), hot(name, sent))
      .catch(() => kube.create(resourcePath(CONFIG_MAPS, HOT_NAMESPACE), hot(name, sent)))

/** Writes to etcd directly: the API server cannot write at this rate, but can still watch. */
export const throughEtcd =
  (etcd: Etcd): Change =>
  (name, sent) =>
    etcd.put(hot(name, sent))

export const hotName = (number: number): string => `hot-${number}`
export const nowMs = (): number => performance.timeOrigin + performance.now()

export interface Pace {
  rate: number
  seconds: number
  /** How many are changed, one after the other. */
  objects: number
}

/** As many changes a second as asked for, or as are taken; gives the number sent at each full second. */
export async function* steadyChanges(change: Change, { rate, seconds, objects }: Pace): AsyncGenerator<number> {
  const began = performance.now()
  let sent = 0
  const inFlight = new Set<Promise<unknown>>()
  for (let second = 1; second <= seconds; second++) {
    while (performance.now() < began + second * 1000) {
      const due = Math.min(second * rate, ((performance.now() - began) / 1000) * rate)
      for (; sent < due && inFlight.size < IN_FLIGHT; sent++) {
        const done = change(hotName(sent % objects), String(nowMs())).finally(() => inFlight.delete(done))
        inFlight.add(done)
      }
      await sleep(2)
    }
    yield sent
  }
  await Promise.all(inFlight)
}

/** Epoch milliseconds, with fractions. */
interface Arrival {
  sent: number
  at: number
}

/** Records when the server answered each change. The time after the answer is the way to the stream. */
export function timed(change: Change) {
  const answered = new Map<number, number>()
  const untilAnswer: number[] = []
  return {
    change: (async (name, sent) => {
      await change(name, sent)
      answered.set(Number(sent), nowMs())
      untilAnswer.push(nowMs() - Number(sent))
    }) satisfies Change,
    /** Milliseconds from sending to the answer, since this was asked last. */
    takeAnswers: (): number[] => untilAnswer.splice(0),
    /** Milliseconds from the answer to the stream: none where the stream was first. */
    delaysAfter: (arrivals: readonly Arrival[]): number[] =>
      arrivals.map(({ sent, at }) => {
        const delay = Math.max(0, at - (answered.get(sent) ?? at))
        answered.delete(sent)
        return delay
      }),
  }
}

export const delaysOf = (arrivals: readonly Arrival[]): number[] => arrivals.map(({ sent, at }) => at - sent)

/** What arrives in EVENTS of these changes, and when. */
export class Arrivals implements AsyncDisposable {
  #arrived: Arrival[] = []
  #count = 0
  readonly #stop = new AbortController()
  readonly #following: Promise<void>

  constructor(js: JetStream, namespace = HOT_NAMESPACE) {
    this.#following = this.#follow(js, namespace)
  }

  /** Returns the arrivals since the last call. */
  take(): Arrival[] {
    const arrived = this.#arrived
    this.#arrived = []
    return arrived
  }

  get count(): number {
    return this.#count
  }

  async #follow(js: JetStream, namespace: string): Promise<void> {
    const filter = objectFilter({ ref: CONFIG_MAPS, namespace })
    const began = Date.now()
    for await (const { data } of follow(js, 'EVENTS', [filter], this.#stop.signal)) {
      const { metadata } = JSON.parse(Buffer.from(data).toString()) as KubeObject
      const sent = Number(metadata.annotations?.[SENT])
      if (!(sent > began)) continue
      this.#arrived.push({ sent, at: nowMs() })
      this.#count++
    }
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#stop.abort()
    await this.#following
  }
}
