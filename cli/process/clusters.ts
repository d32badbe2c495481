import { readFile } from 'node:fs/promises'
import { dirname, resolve } from 'node:path'
import { parse } from 'yaml'
import { z } from 'zod'
import type { RunLog } from '#contracts'
import { repeat } from '#primitives'
import { type Config, withPrefix } from './config.ts'
import { UsageError } from './exit.ts'

/** One cluster of the file. */
export interface ClusterEntry {
  name: string
  /** The path of its kubeconfig. Undefined: its agents send the requests. */
  kubeconfig: string | undefined
  context: string | undefined
  /** The prefix of its streams and subjects; empty for those of an installation without a prefix. */
  prefix: string
  /** What functions read in `cluster.labels`. */
  labels: Record<string, string>
  /** The certificate and key of its user of NATS. Left out: those of the process. */
  nats?: { cert: string; key: string }
}

const NAME = /^[a-z0-9]([a-z0-9-]{0,30}[a-z0-9])?$/

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
  .refine(
    ({ kubeconfig, context, agent }) => (agent ? (kubeconfig ?? context) === undefined : kubeconfig !== undefined),
    { path: ['kubeconfig'], message: 'give one, or agent: true instead of it' },
  )

/**
 * The first parts of the subjects of an installation without a prefix: with one of them as its prefix, a cluster would get
 * messages of it, or send its own to it.
 */
const TAKEN = ['k8s', 'cursor', 'work', 'queued', 'key', 'done', 'dead', 'runs', 'usage', 'trigger', 'agent']

const clustersFile = z.strictObject({ clusters: z.array(entry) })

/**
 * Returns the clusters of a file. A relative path begins at the folder of the file. Throws a UsageError that
 * names the value that is wrong.
 */
export async function readClusters(file: string): Promise<ClusterEntry[]> {
  return clustersIn(await textOf(file), file)
}

const textOf = (file: string): Promise<string> =>
  readFile(file, 'utf8').catch((cause: Error) => {
    throw new UsageError(`the clusters in ${file} cannot be read: ${cause.message}`, { cause })
  })

export function clustersIn(text: string, file: string): ClusterEntry[] {
  const { data, error } = clustersFile.safeParse(yamlIn(text, file))
  if (error !== undefined) {
    const wrong = error.issues.map(
      ({ path, message }) => `${path.length === 0 ? 'the file' : path.join('.')}: ${message}`,
    )
    throw new UsageError(`the clusters in ${file} are not valid: ${wrong.join('; ')}`)
  }
  const pathOf = (path: string) => resolve(dirname(file), path)
  const entries = data.clusters.map(({ name, kubeconfig, context, prefix = name, labels = {}, nats }) => ({
    name,
    kubeconfig: kubeconfig === undefined ? undefined : pathOf(kubeconfig),
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
  return entries
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

/** The kubelet swaps the link to the files of a Secret, which not every watch of a file notices: the content is compared. */
const READ_AGAIN_MS = 5000

/** The clusters of a file that is read again and again. */
export class ClustersFile {
  readonly #file: string
  #entries: readonly ClusterEntry[]
  #seen: string | undefined
  #used: string | undefined

  constructor(file: string, entries: readonly ClusterEntry[]) {
    this.#file = file
    this.#entries = entries
  }

  /**
   * Returns the clusters. A text counts when it was read twice in a row: a file that is being written may show its beginning
   * once, and a cluster that is not listed is not served. Throws a UsageError once for a text that is not valid.
   */
  read(text: string): readonly ClusterEntry[] {
    const isSame = text === this.#seen
    this.#seen = text
    if (!isSame || text === this.#used) return this.#entries
    this.#used = text
    this.#entries = clustersIn(text, this.#file)
    return this.#entries
  }
}

/**
 * Reads the file again every 5 s until the signal, and calls `changed` with the clusters in it. A file that is missing or
 * not valid changes nothing, and is logged once.
 */
export function followClusters(
  { file, entries }: { file: string; entries: readonly ClusterEntry[] },
  { log, signal, changed }: { log: RunLog; signal: AbortSignal; changed: (entries: readonly ClusterEntry[]) => void },
): Promise<void> {
  const known = new ClustersFile(file, entries)
  let told = ''
  const failed = (error: unknown) => {
    const why = error instanceof Error ? error.message : String(error)
    if (why !== told) log.error({ because: why }, 'the clusters stay as they are: their file cannot be used')
    told = why
  }
  const read = async () => {
    changed(known.read(await textOf(file)))
    told = ''
  }
  return repeat(read, { signal, everyMs: READ_AGAIN_MS, failed })
}

/** Returns the configuration of the process for one of its clusters. */
export const configOf = (config: Config, { name, kubeconfig, context, prefix, nats }: ClusterEntry): Config => {
  const user = nats && { NATS_CERT: nats.cert, NATS_KEY: nats.key }
  const access = { KUBECONFIG: kubeconfig, context, byAgent: kubeconfig === undefined }
  return withPrefix({ ...config, ...user, ...access, cluster: name }, prefix)
}

/**
 * Returns the configuration for the cluster of this name, without the file. `any` returns the configuration with the file, and
 * with the name if there is one; otherwise one has to be named.
 */
export async function chosenConfig(config: Config, name: string | undefined, which?: 'any'): Promise<Config> {
  const { FAIRLEAD_CLUSTERS: file } = config
  if (file === undefined) throw new UsageError('no file lists clusters: give --clusters FILE, or set FAIRLEAD_CLUSTERS')
  if (name === undefined && which === 'any') return config
  const entries = await readClusters(file)
  const names = entries.map((one) => one.name).join(', ') || 'none'
  if (name === undefined)
    throw new UsageError(`${file} lists clusters: choose one with --cluster NAME; it has ${names}`)
  const found = entries.find((one) => one.name === name)
  if (found === undefined) throw new UsageError(`${file} has no cluster ${name}; it has ${names}`)
  return which === 'any' ? { ...config, cluster: name } : { ...configOf(config, found), FAIRLEAD_CLUSTERS: undefined }
}
