import { setTimeout as sleep } from 'node:timers/promises'
import type { KubeObject } from '#contracts'
import { ApiConnectionError, isConflict } from '#kube'
import { forEachAtMost } from '#primitives'
import type { WebhookPlace } from '../../bench/webhooks/place.ts'
import { differences, type Refusal } from './judge.ts'
import {
  bodyOf,
  type Edit,
  editOf,
  type Fields,
  firstFields,
  onlyIn,
  pathOf,
  seenOf,
  shownIn,
  type Version,
} from './pages.ts'

const AT_ONCE = 32
/** One edit in so many is a whole object that the client has read before. */
const REPLACED = 4
/** One of these in so many has no annotations, as of a client with a file of its own. */
const BARE = 8
const AGAIN_MS = 500
/** An edit that is refused for so long is given up. */
const LONGEST_MS = 300_000
const MOST_OPEN = 100

/** Objects that clients of several versions edit, and all fields that each of them has to have. */
export class PageEdits {
  readonly wanted = new Map<string, Fields>()
  readonly refusals: Refusal[] = []
  /** Fields that were not right in the answer to an edit, and what else was found meanwhile. */
  readonly wrong: string[] = []
  /** Edits that were accepted, and those of them that were whole objects without annotations. */
  edits = 0
  bare = 0
  /** Requests that the API server did not answer, and that were sent again. */
  repeated = 0
  /** The versions of clients. */
  versions: readonly Version[] = ['v1beta1']
  readonly #place: Pick<WebhookPlace, 'kube' | 'answers'>
  readonly #random: () => number
  readonly #busy = new Set<string>()
  #value = 1000

  constructor(place: Pick<WebhookPlace, 'kube' | 'answers'>, random: () => number) {
    this.#place = place
    this.#random = random
  }

  async create(count: number): Promise<void> {
    const numbers = Array.from({ length: count }, (_, index) => index)
    await forEachAtMost(AT_ONCE, numbers, async (index) => {
      const [name, fields] = [`page-${index}`, firstFields(index)]
      await this.#place.kube.create(pathOf('v1beta1'), bodyOf('v1beta1', name, fields))
      this.wanted.set(name, fields)
    })
  }

  /** So many edits a second until aborted. Resolves when all are accepted. */
  async during(signal: AbortSignal, perSecond: number): Promise<void> {
    const names = [...this.wanted.keys()]
    const open = new Set<Promise<void>>()
    for (const began = performance.now(), tick = { at: 0 }; !signal.aborted; tick.at++) {
      await sleep(Math.max(0, began + (tick.at * 1000) / perSecond - performance.now()))
      const name = names[Math.floor(this.#random() * names.length)]
      if (name === undefined || this.#busy.has(name) || open.size >= MOST_OPEN) continue
      const editing = this.#edit(name).finally(() => open.delete(editing))
      open.add(editing)
    }
    await Promise.all(open)
  }

  async #edit(name: string): Promise<void> {
    const before = this.wanted.get(name)
    const version = this.versions[Math.floor(this.#random() * this.versions.length)]
    if (before === undefined || version === undefined) return
    this.#busy.add(name)
    // An edit twice is an edit once: a repetition after a lost answer changes nothing more.
    const edit = editOf(version, this.#random, ++this.#value, before)
    const isWhole = this.#random() < 1 / REPLACED
    const isBare = isWhole && this.#random() < 1 / BARE
    const wanted = isBare ? onlyIn(version, edit.after) : edit.after
    const send = isWhole ? () => this.#replace(name, version, wanted, isBare) : () => this.#patch(name, edit)
    const after = await this.#untilAccepted(send)
    if (after === undefined) return void this.wrong.push(`edit of ${name} in ${version}: it is refused all the time`)
    for (const one of differences(`edit of ${name} in ${version}: `, seenOf(after), shownIn(version, wanted)))
      this.wrong.push(one)
    this.wanted.set(name, wanted)
    if (isBare) this.bare++
    this.edits++
    this.#busy.delete(name)
  }

  #patch(name: string, { version, patch }: Edit): Promise<KubeObject> {
    return this.#place.kube.patch<KubeObject>(pathOf(version, name), patch, 'merge')
  }

  async #replace(name: string, version: Version, after: Fields, isBare: boolean): Promise<KubeObject> {
    const path = pathOf(version, name)
    const { metadata, ...object } = await this.#place.kube.get<KubeObject>(path)
    const { spec, label } = shownIn(version, after)
    const { annotations, ...others } = metadata
    const labels = { ...metadata.labels, ...(label !== undefined && { edited: label }) }
    return this.#place.kube.replace<KubeObject>(path, {
      ...object,
      metadata: { ...others, labels, ...(!isBare && annotations !== undefined && { annotations }) },
      spec,
    })
  }

  async #untilAccepted(send: () => Promise<KubeObject>): Promise<KubeObject | undefined> {
    for (const end = performance.now() + LONGEST_MS; performance.now() < end; ) {
      const from = performance.now()
      try {
        return await send()
      } catch (error) {
        if (error instanceof ApiConnectionError) {
          this.repeated++
          await this.#place.answers()
        } else if (!isConflict(error)) {
          const because = error instanceof Error ? error.message : String(error)
          this.refusals.push({ from, to: performance.now(), because })
          await sleep(AGAIN_MS)
        }
      }
    }
    return undefined
  }
}
