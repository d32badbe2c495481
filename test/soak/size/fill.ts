import { randomUUID } from 'node:crypto'
import { forEachAtMost } from '#primitives'
import { base64, type EtcdCall } from '../../support/cluster-etcd.ts'
import { ROLE, teamOf } from './function.ts'

/** etcd takes 128 operations in a transaction. */
const BATCH = 100
const AT_ONCE = 4
const CREATED = '2030-01-01T00:00:00Z'

export interface Plan {
  teams: number
  /** ConfigMaps of a team that are reconciled. */
  primaries: number
  /** ConfigMaps of a team that nothing reconciles. */
  others: number
  /** The size of each ConfigMap as JSON. */
  bytes: number
}

interface Place {
  namespace: string
  name: string
}

/** Writes ConfigMaps behind the API server, which would need an hour for a million of them. */
export class Etcd {
  readonly #call: EtcdCall
  readonly #text: string

  constructor(call: EtcdCall, bytes: number) {
    this.#call = call
    this.#text = 'x'.repeat(Math.max(0, bytes - 400))
  }

  async fill({ teams, primaries, others }: Plan, progress: (done: number) => void): Promise<void> {
    let done = 0
    await forEachAtMost(AT_ONCE, batches(teams, primaries, others), async (batch) => {
      await this.put(batch)
      done += batch.length
      progress(done)
    })
  }

  /** Writes the next version of up to a hundred ConfigMaps in one transaction. */
  async put(
    objects: (Place & { uid?: string; primary?: boolean; annotations?: Record<string, string> })[],
  ): Promise<void> {
    const success = objects.map(({ namespace, name, uid = uidOf(namespace, name), primary, annotations }) => {
      const labels = { [ROLE]: primary ? 'primary' : 'other' }
      const metadata = { name, namespace, uid, creationTimestamp: CREATED, labels, annotations }
      const object = { apiVersion: 'v1', kind: 'ConfigMap', metadata, data: { text: this.#text } }
      const key = base64(`/registry/configmaps/${namespace}/${name}`)
      return { request_put: { key, value: base64(JSON.stringify(object)) } }
    })
    await this.#call('kv/txn', { success })
  }
}

export const primaryName = (number: number): string => `primary-of-some-length-${number}`
export const otherName = (number: number): string => `other-object-of-some-length-${number}`

const RUN = randomUUID().slice(0, 23)
/** One uid for each object, as long as this process lives. */
function uidOf(namespace: string, name: string): string {
  let number = 7
  for (const text of [namespace, name])
    for (let index = 0; index < text.length; index++) number = (number * 31 + text.charCodeAt(index)) % 2 ** 47
  return `${RUN}-${number.toString(16).padStart(12, '0')}`
}

async function* batches(teams: number, primaries: number, others: number) {
  let batch: (Place & { primary: boolean })[] = []
  for (let team = 0; team < teams; team++)
    for (let index = 0; index < primaries + others; index++) {
      const primary = index < primaries
      batch.push({
        namespace: teamOf(team),
        name: primary ? primaryName(index) : otherName(index - primaries),
        primary,
      })
      if (batch.length < BATCH) continue
      yield batch
      batch = []
    }
  if (batch.length > 0) yield batch
}
