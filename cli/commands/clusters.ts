import { randomUUID } from 'node:crypto'
import { boundCluster, streamNames } from '#events'
import { withExistingStreams } from '#inspect/keys'
import type { JetStream } from '#nats'
import { mapAtMost } from '#primitives'
import { agentSubjects, isNobody } from '#process/agent-wire'
import { configOf } from '#process/clusters'
import type { Config } from '#process/config'
import { describe, EXIT, UsageError } from '#process/exit'
import { allClusters, chosenConfig } from '#process/listed-clusters'
import { openJetStream, streamsOf } from '#process/nats'
import type { CommandContext } from '../options.ts'

/** The option of commands that list what each cluster has. */
export interface AllClustersOptions {
  allClusters?: boolean
  output: string
  watch?: boolean
}

/**
 * Runs the command for each cluster of the file, with a heading; as JSON, in one object by the name of the cluster.
 * A cluster whose streams cannot be read does not hide the others.
 */
export async function inClusters(
  { output, watch = false }: AllClustersOptions,
  context: CommandContext,
  act: (context: CommandContext) => Promise<void>,
): Promise<void> {
  if (watch) throw new UsageError('--watch is for one cluster: give --cluster NAME instead of --all-clusters')
  const config = await context.config('any')
  if (config.cluster !== undefined) throw new UsageError('--cluster and --all-clusters exclude each other: give one')
  if (config.FAIRLEAD_CLUSTERS === undefined) await chosenConfig(config, undefined)
  const entries = await allClusters(config, config.FAIRLEAD_CLUSTERS ?? '')
  const found = await mapAtMost(AT_ONCE, entries, async (entry) => {
    const texts: string[] = []
    const print = (text: string) => void texts.push(text)
    const ofCluster = async () => ({ ...configOf(config, entry), FAIRLEAD_CLUSTERS: undefined })
    try {
      await act({ ...context, config: ofCluster, print })
      return { name: entry.name, text: texts.join('\n') }
    } catch (error) {
      context.setExitCode(EXIT.failed)
      return { name: entry.name, failure: describe(error, false) }
    }
  })
  if (output === 'json') {
    const all = found.map(({ name, text, failure }) => [name, text === undefined ? { failure } : JSON.parse(text)])
    return context.print(JSON.stringify(Object.fromEntries(all), null, 2))
  }
  context.print(found.map(({ name, text, failure }) => `cluster ${name}\n${text ?? failure}`).join('\n\n'))
}

const AT_ONCE = 4

export interface ForgetOptions {
  deleteStreams?: boolean
}

const AGENT_ANSWERS_WITHIN_MS = 2000

/**
 * Throws if an agent answers. Returns why nobody can say whether one runs; undefined: NATS says that none does, which it knows
 * in the account of the agents only.
 */
async function unlessAgent(name: string, config: Config): Promise<string | undefined> {
  const { sessions, answers } = agentSubjects(config.FAIRLEAD_PREFIX)
  const unknown = (why: string) =>
    `whether an agent of ${name} still runs is not known: ${why}. Take a user of NATS in the account of agents that may publish to ${sessions} and subscribe to ${answers}.>, or delete the streams by nats stream rm if you are sure`
  if (config.NATS_API_PREFIX !== undefined) return unknown('NATS_API_PREFIX is that of another account')
  try {
    await using js = await openJetStream(config, 'dispatch', { inboxPrefix: `${answers}.${randomUUID()}` })
    await js.ask(sessions, '', () => true, AGENT_ANSWERS_WITHIN_MS)
  } catch (error) {
    return isNobody(error) ? undefined : unknown((error as Error).message)
  }
  throw new UsageError(`an agent of ${name} still runs, and would make the streams again: end it in its cluster first`)
}

/** WORK is the last one: without it, a deletion that was interrupted could not be repeated. */
const STREAMS = ['EVENTS', 'DEAD', 'RUNS', 'USAGE', 'WORK']

/** Returns the UID of the cluster whose objects are in these streams. Undefined: there are none. */
async function clusterOf(js: JetStream, { FAIRLEAD_PREFIX: prefix }: Config): Promise<unknown> {
  const names = streamNames(prefix)
  return (await js.usage(names.stream)) && boundCluster(js, names)
}

/**
 * Deletes the streams of a cluster that the file does not list any more. Nothing in the cluster is touched, which may not
 * exist any more.
 */
export async function forget(
  name: string,
  { deleteStreams = false }: ForgetOptions,
  context: CommandContext,
): Promise<void> {
  const whole = await context.config('any')
  const file = whole.FAIRLEAD_CLUSTERS
  const listed = file === undefined ? [] : await allClusters(whole, file)
  const user = listed.find((one) => one.name === name || one.prefix === name)
  if (user !== undefined)
    throw new UsageError(
      `${file} lists ${name} as cluster ${user.name}: remove it there first, and wait until it has drained`,
    )
  const entry = { name, context: undefined, prefix: name, labels: {} }
  const config = { ...configOf(whole, entry), FAIRLEAD_CLUSTERS: undefined }
  await withExistingStreams({ config: async () => config }, async ({ js, queue }) => {
    const id = await clusterOf(js, config)
    for (const one of listed) {
      // `a-b` may also be the shard b of the cluster a.
      const begins = one.prefix === '' ? '' : `${one.prefix}-`
      if (id === undefined || !name.startsWith(begins) || (await clusterOf(js, configOf(whole, one))) !== id) continue
      throw new UsageError(
        `${queue.stream} belongs to a shard of cluster ${one.name}, which ${file} lists, or to an earlier name of it: nats stream rm deletes it if you are sure`,
      )
    }
    const served: string[] = []
    for (const reconciler of await queue.reconcilers()) if (await queue.isServed(reconciler)) served.push(reconciler)
    if (served.length > 0)
      throw new UsageError(
        `a process still serves ${served.join(', ')} from ${queue.stream}: end it, or its file of clusters lists ${name}`,
      )
    const unknown = await unlessAgent(name, config)
    if (unknown !== undefined) {
      if (deleteStreams) throw new UsageError(unknown)
      context.print(`${unknown}.`)
    }
    for (const stream of streamsOf(config, STREAMS)) {
      const usage = await js.usage(stream)
      if (usage === undefined) continue
      if (deleteStreams) await js.admin.streams.delete(stream)
      context.print(`${stream}: ${deleteStreams ? 'deleted' : `would be deleted, ${usage.bytes} bytes`}`)
    }
  })
  if (!deleteStreams)
    context.print(
      'Nothing was deleted: add --delete-streams. Keys, timers and the history of the cluster go with them.',
    )
}
