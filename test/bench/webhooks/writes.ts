import { setTimeout as sleep } from 'node:timers/promises'
import { ApiConnectionError, ApiError, resourcePath } from '#kube'
import { forEachAtMost } from '#primitives'
import type { WebhookPlace } from './place.ts'
import { NAMESPACE, Plain, Site, siteOf } from './site.ts'

export interface Written {
  /** Milliseconds until the answer. */
  times: number[]
  /** Answers that refuse. */
  refused: string[]
  /** Writes that were sent again, since the API server did not answer. */
  repeated: number
}

export type Version = 'v1' | 'v1beta1'

const AT_ONCE = 32

export const pathOf = (kind: 'Site' | 'Plain', version: Version, name?: string): string => {
  const { group, resource } = kind === 'Site' ? Site : Plain
  return resourcePath({ group, version, resource }, NAMESPACE, name)
}

const namesOf = (kind: 'Site' | 'Plain', count: number): string[] =>
  Array.from({ length: count }, (_, index) => `${kind.toLowerCase()}-${index}`)

/** Writes one number of each object again and again, and knows which number each object has to have. */
export class Writes {
  readonly #place: WebhookPlace
  readonly #kind: 'Site' | 'Plain'
  /** The last number that was accepted; and those after it that were refused with a failure, which may have been stored. */
  readonly #wanted = new Map<string, number[]>()
  readonly #busy = new Set<string>()
  #names: string[] = []
  #last = 0
  #next = 0

  constructor(place: WebhookPlace, kind: 'Site' | 'Plain') {
    this.#place = place
    this.#kind = kind
  }

  get names(): readonly string[] {
    return this.#names
  }

  async create(count: number): Promise<void> {
    const more = namesOf(this.#kind, count).slice(this.#names.length)
    await forEachAtMost(AT_ONCE, more, async (name) => {
      await this.#place.kube.create(pathOf(this.#kind, 'v1'), siteOf(this.#kind, name))
      this.#wanted.set(name, [0])
    })
    this.#names = [...this.#names, ...more]
  }

  /** So many a second as long as something happens, of the first `among` objects, in these versions in turn. */
  async during(
    happens: () => Promise<unknown>,
    { perSecond, versions, among }: { perSecond: number; versions: readonly Version[]; among: number },
  ): Promise<Written> {
    const written: Written = { times: [], refused: [], repeated: 0 }
    const open: Promise<void>[] = []
    const over = new AbortController()
    const happening = happens().finally(() => over.abort())
    const began = performance.now()
    for (let tick = 0; !over.signal.aborted; tick++) {
      await sleep(Math.max(0, began + (tick * 1000) / perSecond - performance.now()))
      const name = this.#free(among)
      const version = versions[tick % versions.length]
      if (name !== undefined && version !== undefined) open.push(this.#write(name, version, written))
    }
    await Promise.all(open)
    await happening
    return written
  }

  /** The objects of the first `among` that have another number than the last one that was accepted. */
  async wrong(among: number): Promise<string[]> {
    const found: string[] = []
    await forEachAtMost(AT_ONCE, this.#names.slice(0, among), async (name) => {
      const { spec } = await this.#place.kube.get<ReturnType<typeof siteOf>>(pathOf(this.#kind, 'v1', name))
      const [value, wanted = []] = [spec.http.timeoutMs, this.#wanted.get(name)]
      if (!wanted.includes(value)) found.push(`${name} has ${value} instead of ${wanted.join(' or ')}`)
      if (spec.routes.length !== siteOf(this.#kind, name).spec.routes.length) found.push(`${name} has lost routes`)
    })
    return found
  }

  #free(among: number): string | undefined {
    for (let tries = 0; tries < among; tries++) {
      const name = this.#names[this.#next++ % among]
      if (name !== undefined && !this.#busy.has(name)) return name
    }
    return undefined
  }

  async #write(name: string, version: Version, written: Written): Promise<void> {
    this.#busy.add(name)
    const timeoutMs = ++this.#last
    const spec = version === 'v1' ? { http: { timeoutMs } } : { timeoutMs }
    const began = performance.now()
    for (;;)
      try {
        await this.#place.kube.patch(pathOf(this.#kind, version, name), { spec }, 'merge')
        written.times.push(performance.now() - began)
        this.#wanted.set(name, [timeoutMs])
        break
      } catch (error) {
        if (error instanceof ApiConnectionError || isAway(error)) {
          written.repeated++
          await this.#place.answers()
          continue
        }
        written.refused.push(error instanceof Error ? error.message : String(error))
        if (error instanceof ApiError && error.code >= 500) this.#wanted.get(name)?.push(timeoutMs)
        break
      }
    this.#busy.delete(name)
  }
}

/** An API server that begins or ends asks for patience. */
const isAway = (error: unknown): boolean => error instanceof ApiError && [429, 503].includes(error.code)
