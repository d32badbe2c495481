import { readFile } from 'node:fs/promises'
import { dirname, resolve } from 'node:path'
import { parse } from 'yaml'
import { z } from 'zod'
import type { ForeignKubeConfig } from '#kube'
import { type Config, withPrefix } from './config.ts'
import { UsageError } from './exit.ts'

/** One cluster of the file, or of an inventory. */
export interface ClusterEntry {
  name: string
  /** The path of its kubeconfig. Left out: the cluster that a process without a file of clusters would serve. */
  kubeconfig?: string
  /** Its kubeconfig, if it is in an inventory that others write. */
  foreign?: ForeignKubeConfig
  /** Its agents send the requests. */
  agent?: true | undefined
  context: string | undefined
  /** The prefix of its streams and subjects; empty for those of an installation without a prefix. */
  prefix: string
  /** What functions read in `cluster.labels`. */
  labels: Record<string, string>
  /** The certificate and key of its user of NATS. Left out: those of the process. */
  nats?: { cert: string; key: string }
}

/** Secrets with a kubeconfig each, such as those of Cluster API. */
export interface SecretsInventory {
  namespace: string
  /** A label selector. */
  selector: string
  /** The key of the kubeconfig in a Secret. */
  key: string
  /** The end of the names of the Secrets. The rest is the name of the cluster. */
  suffix: string
  /** The path of the kubeconfig of the cluster with the Secrets. Left out: the cluster of this process. */
  kubeconfig?: string
  context?: string | undefined
}

/** What a file says: clusters, and where others are listed. */
export interface ClusterList {
  clusters: ClusterEntry[]
  from: SecretsInventory[]
}

export const NAME = /^[a-z0-9]([a-z0-9-]{0,30}[a-z0-9])?$/

const entry = z
  .strictObject({
    name: z.string().regex(NAME, '1 to 32 lower-case letters, digits or hyphens'),
    kubeconfig: z.string().min(1).optional(),
    context: z.string().min(1).optional(),
    agent: z.literal(true).optional(),
    prefix: z
      .string()
      .regex(/^[A-Za-z0-9-]{0,32}$/, 'at most 32 letters, digits or hyphens')
      .optional(),
    labels: z.record(z.string(), z.string()).optional(),
    nats: z.strictObject({ cert: z.string().min(1), key: z.string().min(1) }).optional(),
  })
  .refine(({ kubeconfig, context, agent }) => !agent || (kubeconfig ?? context) === undefined, {
    path: ['kubeconfig'],
    message: 'it has agents: leave out kubeconfig and context',
  })

/**
 * The first parts of the subjects of an installation without a prefix: with one of them as its prefix, a cluster would get
 * messages of it, or send its own to it.
 */
export const TAKEN = ['k8s', 'cursor', 'work', 'queued', 'key', 'done', 'dead', 'runs', 'usage', 'trigger', 'agent']

const secrets = z.strictObject({
  namespace: z.string().min(1),
  selector: z.string().min(1),
  key: z.string().min(1).default('value'),
  suffix: z.string().default('-kubeconfig'),
  kubeconfig: z.string().min(1).optional(),
  context: z.string().min(1).optional(),
})

const clustersFile = z.strictObject({
  clusters: z.array(entry),
  from: z.array(z.strictObject({ secrets })).optional(),
})

/**
 * Returns the clusters of a file. A relative path begins at the folder of the file. Throws a UsageError that
 * names the value that is wrong.
 */
export async function readClusters(file: string): Promise<ClusterList> {
  return clustersIn(await clustersText(file), file)
}

export const clustersText = (file: string): Promise<string> =>
  readFile(file, 'utf8').catch((cause: Error) => {
    throw new UsageError(`the clusters in ${file} cannot be read: ${cause.message}`, { cause })
  })

export function clustersIn(text: string, file: string): ClusterList {
  const { data, error } = clustersFile.safeParse(yamlIn(text, file))
  if (error !== undefined) {
    const wrong = error.issues.map(
      ({ path, message }) => `${path.length === 0 ? 'the file' : path.join('.')}: ${message}`,
    )
    throw new UsageError(`the clusters in ${file} are not valid: ${wrong.join('; ')}`)
  }
  const pathOf = (path: string) => resolve(dirname(file), path)
  const entries = data.clusters.map(({ name, kubeconfig, context, agent, prefix = name, labels = {}, nats }) => ({
    name,
    ...(kubeconfig !== undefined && { kubeconfig: pathOf(kubeconfig) }),
    ...(agent && { agent }),
    context,
    prefix,
    labels,
    ...(nats && { nats: { cert: pathOf(nats.cert), key: pathOf(nats.key) } }),
  }))
  for (const field of ['name', 'prefix'] as const) {
    const twice = entries.find((one, index) => entries.findIndex((other) => other[field] === one[field]) < index)
    if (twice !== undefined)
      throw new UsageError(
        `the clusters in ${file} are not valid: two have the ${field} ${JSON.stringify(twice[field])}: give each its own`,
      )
  }
  const taken = entries.find(({ prefix }) => TAKEN.includes(prefix))
  if (taken !== undefined)
    throw new UsageError(
      `the clusters in ${file} are not valid: ${taken.prefix} is a name of Fairlead's own subjects: give ${taken.name} another prefix`,
    )
  const from = (data.from ?? []).map(({ secrets: { kubeconfig, ...one } }) => ({
    ...one,
    ...(kubeconfig !== undefined && { kubeconfig: pathOf(kubeconfig) }),
  }))
  return { clusters: entries, from }
}

function yamlIn(text: string, file: string): unknown {
  try {
    return parse(text)
  } catch (cause) {
    // The other lines show the text, which may be that of a kubeconfig.
    const [where = ''] = (cause as Error).message.split('\n')
    throw new UsageError(`the clusters in ${file} are not YAML: ${where.replace(/:$/, '')}`, { cause })
  }
}

/** The clusters of a file that is read again and again. */
export class ClustersFile {
  readonly #file: string
  #list: ClusterList
  #seen: string | undefined
  #used: string | undefined

  constructor(file: string, list: ClusterList) {
    this.#file = file
    this.#list = list
  }

  /**
   * Returns the clusters. A text counts when it was read twice in a row: a file that is being written may show its beginning
   * once, and a cluster that is not listed is not served. Throws a UsageError once for a text that is not valid.
   */
  read(text: string): ClusterList {
    const isSame = text === this.#seen
    this.#seen = text
    if (!isSame || text === this.#used) return this.#list
    this.#used = text
    this.#list = clustersIn(text, this.#file)
    return this.#list
  }
}

/** Returns the configuration of the process for one of its clusters. */
export const configOf = (
  config: Config,
  { name, kubeconfig, foreign, agent, context, prefix, nats }: ClusterEntry,
): Config => {
  const user = nats && { NATS_CERT: nats.cert, NATS_KEY: nats.key }
  const path = kubeconfig ?? (agent || foreign ? undefined : config.KUBECONFIG)
  const access = { KUBECONFIG: path, context, foreignKubeConfig: foreign, byAgent: agent === true }
  return withPrefix({ ...config, ...user, ...access, cluster: name }, prefix)
}
