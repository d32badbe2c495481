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
  /** The path of its kubeconfig. */
  kubeconfig: string
  context: string | undefined
  /** The prefix of its streams and subjects; empty for those of an installation without a prefix. */
  prefix: string
  /** What functions read in `cluster.labels`. */
  labels: Record<string, string>
  /** The certificate and key of its user of NATS. Left out: those of the process. */
  nats?: { cert: string; key: string }
}

const NAME = /^[a-z0-9]([a-z0-9-]{0,30}[a-z0-9])?$/

const entry = z.strictObject({
  name: z.string().regex(NAME, '1 to 32 lower-case letters, digits or hyphens'),
  kubeconfig: z.string().min(1),
  context: z.string().min(1).optional(),
  prefix: z
    .string()
    .regex(/^[A-Za-z0-9-]{0,32}$/, 'at most 32 letters, digits or hyphens')
    .optional(),
  labels: z.record(z.string(), z.string()).optional(),
  nats: z.strictObject({ cert: z.string().min(1), key: z.string().min(1) }).optional(),
})

const clustersFile = z.strictObject({ clusters: z.array(entry) })

/**
 * Returns the clusters of a file. A relative path begins at the folder of the file. Throws a UsageError that
 * names the value that is wrong.
 */
export async function readClusters(file: string): Promise<ClusterEntry[]> {
  const text = await readFile(file, 'utf8').catch((cause: Error) => {
    throw new UsageError(`the clusters in ${file} cannot be read: ${cause.message}`, { cause })
  })
  return clustersIn(text, file)
}

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
    kubeconfig: pathOf(kubeconfig),
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
  return entries
}

function yamlIn(text: string, file: string): unknown {
  try {
    return parse(text)
  } catch (cause) {
    throw new UsageError(`the clusters in ${file} are not YAML: ${(cause as Error).message}`, { cause })
  }
}

/** The kubelet swaps the link to the files of a Secret, which not every watch of a file notices: the content is compared. */
const READ_AGAIN_MS = 5000

/**
 * Reads the file again every 5 s until the signal, and calls `changed` with what is in it. A file that is missing or not
 * valid changes nothing, and is logged once.
 */
export function followClusters(
  file: string,
  { log, signal, changed }: { log: RunLog; signal: AbortSignal; changed: (entries: ClusterEntry[]) => void },
): Promise<void> {
  let told = ''
  const failed = (error: unknown) => {
    const why = error instanceof Error ? error.message : String(error)
    if (why !== told) log.error({ because: why }, 'the clusters stay as they are: their file cannot be used')
    told = why
  }
  const read = async () => {
    changed(await readClusters(file))
    told = ''
  }
  return repeat(read, { signal, everyMs: READ_AGAIN_MS, failed })
}

/** Returns the configuration of the process for one of its clusters. */
export const configOf = (config: Config, { name, kubeconfig, context, prefix, nats }: ClusterEntry): Config => {
  const user = nats && { NATS_CERT: nats.cert, NATS_KEY: nats.key }
  return withPrefix({ ...config, ...user, KUBECONFIG: kubeconfig, context, cluster: name }, prefix)
}

/**
 * Returns the configuration for the cluster of this name, without the file. Without a name, `any` returns the configuration
 * with the file; otherwise one has to be named.
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
  return { ...configOf(config, found), FAIRLEAD_CLUSTERS: undefined }
}
