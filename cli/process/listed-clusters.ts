import type { RunLog } from '#contracts'
import { repeat } from '#primitives'
import { type ClusterEntry, type ClusterList, ClustersFile, clustersText, configOf, readClusters } from './clusters.ts'
import type { Config } from './config.ts'
import { UsageError } from './exit.ts'

/** Returns all clusters of the file and of its inventories. Throws if an inventory does not answer: some would be missing. */
export async function allClusters(config: Config, file: string): Promise<ClusterEntry[]> {
  const { clusters, from } = await readClusters(file)
  if (from.length === 0) return clusters
  const { Inventories, withoutTwins } = await import('./inventory.ts')
  await using inventories = new Inventories(config)
  const failed = (why: string) => {
    throw new UsageError(why)
  }
  return withoutTwins([...clusters, ...(await inventories.clusters(from, failed))])
}

/** The kubelet swaps the link to the files of a Secret, which not every watch of a file notices: the content is compared. */
const READ_AGAIN_MS = 5000

/**
 * Reads the file and its inventories again every 5 s until the signal, and calls `changed` with what is in them. A file that is
 * missing or not valid changes nothing, nor does an inventory that does not answer, and both are logged once.
 */
export async function followClusters(
  { config, file, list }: { config: Config; file: string; list: ClusterList },
  { log, signal, changed }: { log: RunLog; signal: AbortSignal; changed: (entries: ClusterEntry[]) => void },
): Promise<void> {
  const { Inventories, withoutTwins } = await import('./inventory.ts')
  await using inventories = new Inventories(config)
  const known = new ClustersFile(file, list)
  let told = ''
  const failed = (error: unknown) => {
    const why = error instanceof Error ? error.message : String(error)
    if (why !== told) log.error({ because: why }, 'the clusters stay as they are: what lists them cannot be used')
    told = why
  }
  const twins = new Set<string>()
  const left = ({ name, foreign }: ClusterEntry) => {
    if (!twins.has(name))
      log.warn({ cluster: name, from: foreign?.from }, 'a cluster before has its name or prefix: left out')
    twins.add(name)
  }
  const read = async () => {
    const { clusters, from } = known.read(await clustersText(file))
    let isComplete = true
    const ofInventories = await inventories.clusters(from, (why) => {
      isComplete = false
      failed(new Error(why))
    })
    changed(withoutTwins([...clusters, ...ofInventories], left))
    if (isComplete) told = ''
  }
  await repeat(read, { signal, everyMs: READ_AGAIN_MS, failed })
}

/**
 * Returns the configuration for the cluster of this name, without the file. `any` returns the configuration with the file, and
 * with the name if there is one; otherwise one has to be named.
 */
export async function chosenConfig(config: Config, name: string | undefined, which?: 'any'): Promise<Config> {
  const { FAIRLEAD_CLUSTERS: file } = config
  if (file === undefined) throw new UsageError('no file lists clusters: give --clusters FILE, or set FAIRLEAD_CLUSTERS')
  if (name === undefined && which === 'any') return config
  const inFile = (await readClusters(file)).clusters
  // An inventory that does not answer hides no cluster of the file.
  const entries = inFile.some((one) => one.name === name) ? inFile : await allClusters(config, file)
  const names = entries.map((one) => one.name).join(', ') || 'none'
  if (name === undefined)
    throw new UsageError(`${file} lists clusters: choose one with --cluster NAME; it has ${names}`)
  const found = entries.find((one) => one.name === name)
  if (found === undefined) throw new UsageError(`${file} has no cluster ${name}; it has ${names}`)
  return which === 'any' ? { ...config, cluster: name } : { ...configOf(config, found), FAIRLEAD_CLUSTERS: undefined }
}
