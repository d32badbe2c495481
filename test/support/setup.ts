import type { TestProject } from 'vitest/node'
import {
  type BinaryName,
  chooseNode,
  controlPlaneBinaries,
  ensureBinaries,
  kwokBinaries,
  natsBinaries,
  nodeBinaries,
  progressOn,
  serviceBinaries,
  toolBinaries,
} from '#local'
import { goProgram } from './go-program.ts'
import { startHttpReceiver } from './http-receiver.ts'
import { startTestCluster } from './servers.ts'

declare module 'vitest' {
  export interface ProvidedContext {
    /** Asked for, it answers with the addresses of servers that files share which keep to a namespace of their own. */
    sharedServers: string
  }
}

export interface SharedServers {
  kubeconfig: string
  natsUrl: string
}

export default async function setup(project: TestProject): Promise<() => Promise<void>> {
  await buildServers()
  const { url, stop } = await shareServers()
  project.provide('sharedServers', url)
  return stop
}

/** An API server takes seconds to start, and more to live: one for all workers, if any of them asks for it. */
async function shareServers(): Promise<{ url: string; stop: () => Promise<void> }> {
  let cluster: ReturnType<typeof startTestCluster> | undefined
  const receiver = await startHttpReceiver((_, response) => {
    cluster ??= startTestCluster({ nats: true })
    cluster.then(
      ({ kubeconfig, nats }) => response.end(JSON.stringify({ kubeconfig, natsUrl: nats?.url ?? '' })),
      (error: unknown) => response.writeHead(500).end(String(error)),
    )
  })
  const stop = async (): Promise<void> => {
    await receiver[Symbol.asyncDispose]()
    await (await cluster)?.stop()
  }
  return { url: receiver.url, stop }
}

/** Once per run, so that no test file waits, unseen, for a build. */
async function buildServers(): Promise<void> {
  const progress = progressOn(process.stderr)
  const { kind } = await chooseNode('auto', progress)
  const ofNode = kind === 'real' ? [...nodeBinaries, ...serviceBinaries] : []
  const servers: BinaryName[] = [
    ...natsBinaries,
    ...controlPlaneBinaries,
    ...toolBinaries,
    ...kwokBinaries,
    'registry',
    'helm',
  ]
  await ensureBinaries([...servers, ...ofNode], progress)
  await goProgram('cloudevents')
}
