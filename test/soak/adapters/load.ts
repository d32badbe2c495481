import { setTimeout as sleep } from 'node:timers/promises'
import type { KubeObject } from '#contracts'
import { isNotFound, type KubeClient, resourcePath } from '#kube'
import type { Ref } from './watched.ts'

/** Objects of one resource that are made, edited and deleted. */
export interface Subject {
  ref: Ref
  /** How many of them there are, at most. */
  most: number
  /** The names of those of this kind begin so. */
  prefix: string
  namespace?: string
  /** What has to be there before. */
  before?: (name: string) => KubeObject[]
  make: (name: string) => KubeObject
  /** Merge patches of the object, or of something that it depends on. */
  edit?: (name: string, round: number) => { path?: string; patch: object }
}

export interface Made {
  subject: Subject
  name: string
  uid: string
  edits: number
  isDeleted: boolean
}

/** Makes, edits and deletes objects of all subjects, unless it is paused. */
export class Load {
  readonly made = new Map<string, Made>()
  readonly counts = { made: 0, edited: 0, deleted: 0 }
  isPaused = false
  readonly #kube: KubeClient
  readonly #random: () => number
  #next = 0
  #busy: Promise<void> = Promise.resolve()

  constructor(kube: KubeClient, random: () => number) {
    this.#kube = kube
    this.#random = random
  }

  async until(signal: AbortSignal, subjects: readonly Subject[], perSecond: number): Promise<void> {
    while (!signal.aborted) {
      await sleep((2000 / perSecond) * this.#random())
      if (this.isPaused) continue
      const subject = subjects[Math.floor(subjects.length * this.#random())]
      if (subject) this.#busy = this.#change(subject)
      await this.#busy
    }
  }

  /** Nothing changes until it goes on. */
  async pause(): Promise<void> {
    this.isPaused = true
    await this.#busy
  }

  async make(subject: Subject): Promise<void> {
    const { ref, namespace, before, make } = subject
    const name = `${subject.prefix}-${this.#next++}`
    for (const one of before?.(name) ?? []) await this.#kube.create(collectionOf(one), one)
    const object = make(name)
    const { metadata } = await this.#kube.create<KubeObject>(resourcePath(ref, namespace), {
      ...object,
      metadata: { ...object.metadata, name, ...(namespace && { namespace }) },
    })
    const uid = metadata.uid ?? ''
    this.made.set(uid, { subject, name, uid, edits: 0, isDeleted: false })
    this.counts.made++
  }

  async #change(subject: Subject): Promise<void> {
    const alive = [...this.made.values()].filter((one) => one.subject === subject && !one.isDeleted)
    const dice = this.#random()
    const one = alive[Math.floor(alive.length * this.#random())]
    if (one === undefined || (dice < 0.15 && alive.length < subject.most)) return this.make(subject)
    const path = resourcePath(subject.ref, subject.namespace, one.name)
    if (dice > 0.9 && alive.length > 1) {
      one.isDeleted = true
      await this.#kube.delete(path, {}).catch((error: unknown) => {
        if (!isNotFound(error)) throw error
      })
      this.counts.deleted++
      return
    }
    if (subject.edit === undefined) return
    one.edits++
    const { path: other = path, patch } = subject.edit(one.name, one.edits)
    await this.#kube.patch(other, patch, 'merge')
    this.counts.edited++
  }
}

const PLURALS: Record<string, string> = { ConfigMap: 'configmaps', Secret: 'secrets' }

function collectionOf({ kind, metadata: { namespace } }: KubeObject): string {
  return resourcePath({ group: '', version: 'v1', resource: PLURALS[kind] ?? '' }, namespace)
}
