import { createHash } from 'node:crypto'
import type { KubeObject } from '#contracts'
import { type ForeignKubeConfig, type KubeClient, resourcePath } from '#kube'
import { type ClusterEntry, NAME, type SecretsInventory, TAKEN } from './clusters.ts'
import type { Config } from './config.ts'
import { openFollowedKube, openKube } from './kube.ts'

const SECRETS = { group: '', version: 'v1', resource: 'secrets' }
/** How long an inventory may take to answer. The file of clusters is not read meanwhile. */
const ANSWERS_WITHIN_MS = 5000
const SHORTENED = { chars: 15, digits: 16 }
const LOOKS_SHORTENED = /-[0-9a-f]{16}$/

interface Known {
  kube?: KubeClient | undefined
  /** The clusters of its last answer, by the name of the Secret. */
  clusters: Map<string, ClusterEntry & { foreign: ForeignKubeConfig }>
}

/**
 * The clusters of inventories: Secrets with kubeconfigs, which others write. An inventory that does not answer changes nothing: its
 * clusters stay as they were.
 */
export class Inventories implements AsyncDisposable {
  readonly #config: Config
  readonly #known = new Map<string, Known>()

  constructor(config: Config) {
    this.#config = config
  }

  /** Returns the clusters of all of them. `failed`: called for each that does not answer. */
  async clusters(from: readonly SecretsInventory[], failed: (why: string) => void): Promise<ClusterEntry[]> {
    const keys = from.map((one) => JSON.stringify(one))
    for (const [key, { kube }] of this.#known)
      if (!keys.includes(key)) {
        this.#known.delete(key)
        await kube?.close()
      }
    const all = from.map(async (inventory, index) => {
      const key = keys[index] ?? ''
      const known: Known = this.#known.get(key) ?? { clusters: new Map() }
      this.#known.set(key, known)
      try {
        await this.#read(inventory, known)
      } catch (error) {
        // The next look reads its kubeconfig again.
        await known.kube?.close()
        known.kube = undefined
        const why = error instanceof Error ? error.message : String(error)
        failed(`the Secrets in namespace ${inventory.namespace} cannot be listed: ${why}`)
      }
      return [...known.clusters.values()]
    })
    return (await Promise.all(all)).flat()
  }

  async #read(
    { namespace, selector, key, suffix, kubeconfig, context }: SecretsInventory,
    known: Known,
  ): Promise<void> {
    const config = { ...this.#config, context }
    known.kube ??= await (kubeconfig === undefined
      ? openKube(config)
      : openFollowedKube({ ...config, KUBECONFIG: kubeconfig }))
    const options = { labelSelector: selector, timeoutMs: ANSWERS_WITHIN_MS }
    const found = new Map<string, Secret>()
    for await (const { items } of known.kube.list<Secret>(resourcePath(SECRETS, namespace), options))
      for (const secret of items) if (secret.metadata.name.endsWith(suffix)) found.set(secret.metadata.name, secret)
    for (const name of known.clusters.keys()) if (!found.has(name)) known.clusters.delete(name)
    for (const [secret, { metadata, data }] of found) {
      const text = Buffer.from(data?.[key] ?? '', 'base64').toString()
      const from = `key ${key} of Secret ${namespace}/${secret}`
      // A cluster that goes on reads the new text from the same object.
      const foreign = known.clusters.get(secret)?.foreign ?? { from, text }
      foreign.text = text
      const name = clusterName(namespace, secret.slice(0, secret.length - suffix.length))
      known.clusters.set(secret, { name, foreign, context: undefined, prefix: name, labels: metadata.labels ?? {} })
    }
  }

  async [Symbol.asyncDispose](): Promise<void> {
    for (const { kube } of this.#known.values()) await kube?.close()
  }
}

type Secret = KubeObject & { data?: Record<string, string> }

/**
 * Returns the name as it is, or a shortened one with a part of its digest. What looks like a shortened one gets a digest too:
 * nobody who creates a Secret takes the name of another one.
 */
export function clusterName(namespace: string, name: string): string {
  if (NAME.test(name) && !TAKEN.includes(name) && !LOOKS_SHORTENED.test(name)) return name
  const digest = createHash('sha256').update(`${namespace}/${name}`).digest('hex').slice(0, SHORTENED.digits)
  return `${name.replaceAll('.', '-').slice(0, SHORTENED.chars)}-${digest}`
}

/**
 * Returns the clusters without those that have the name or the prefix of one before them: the file comes before its inventories.
 * `left`: called with each that is left out.
 */
export function withoutTwins(entries: readonly ClusterEntry[], left?: (entry: ClusterEntry) => void): ClusterEntry[] {
  const listed: ClusterEntry[] = []
  for (const entry of entries) {
    if (listed.some(({ name, prefix }) => name === entry.name || prefix === entry.prefix)) left?.(entry)
    else listed.push(entry)
  }
  return listed
}
