import { styleText } from 'node:util'
import { colored, type ExistingStreams, explain, gather, jsonOf, openExistingStreams, pageOf } from '#inspect'
import type { KubeClient } from '#kube'
import type { Config } from '#process/config'
import { EXIT, oneLine, UsageError } from '#process/exit'
import { openKube } from '#process/kube'
import { createLogger } from '#process/logging'
import type { CommandContext } from '../options.ts'

export interface ExplainOptions {
  namespace?: string
  output: 'text' | 'json'
}

/** `asked`: `KIND/NAME`, as for kubectl. */
export async function printExplanation(
  asked: string,
  { namespace, output }: ExplainOptions,
  { config, print, setExitCode }: CommandContext,
): Promise<void> {
  const [kind = '', name = '', ...rest] = asked.split('/')
  if (kind === '' || name === '' || rest.length > 0)
    throw new UsageError(`"${asked}" names no object: give KIND/NAME, such as website/hello`)
  const settings = await config()
  const [api, nats] = await Promise.allSettled([kubeOf(settings), streamsOf(settings)])
  if (api.status === 'rejected' && nats.status === 'rejected')
    throw new Error(`neither the API server nor NATS can be asked: ${whyAway(api.reason)}; ${whyAway(nats.reason)}`, {
      cause: api.reason,
    })
  const kube = api.status === 'fulfilled' ? api.value : whyAway(api.reason)
  const streams = nats.status === 'fulfilled' ? nats.value : whyAway(nats.reason)
  try {
    const situation = await gather({ kind, namespace, name }, { kube, streams }, () => new Date())
    const explanation = explain(situation)
    if (output === 'json') print(jsonOf(situation, explanation, settings.cluster))
    else {
      if (settings.cluster !== undefined) print(`cluster ${settings.cluster}`)
      print(pageOf(situation, explanation, process.stdout.columns), (page) => colored(page, explanation, styleText))
    }
    if (situation.object === undefined) setExitCode(EXIT.failed)
  } finally {
    if (typeof kube !== 'string') await kube.close()
    if (typeof streams !== 'string') await streams[Symbol.asyncDispose]()
  }
}

/** Returns a client of an API server that answers. */
async function kubeOf(settings: Config): Promise<KubeClient> {
  const kube = await openKube(settings)
  await kube.text('/version')
  return kube
}

const streamsOf = async (settings: Config): Promise<ExistingStreams & AsyncDisposable> =>
  openExistingStreams(settings, await createLogger({ ...settings, LOG_LEVEL: 'error' }))

const whyAway = (error: unknown): string => oneLine(error instanceof Error ? error.message : String(error))
