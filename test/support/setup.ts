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
} from '#lab'
import { cloudEventsProgram, fakeGcsServer, memcachedOperator, promtool, versitygw } from './go-program.ts'
import { startHttpReceiver } from './http-receiver.ts'
import { azurite } from './node-program.ts'
import { ClusterPool } from './pool.ts'
import { startTestCluster } from './servers.ts'

declare module 'vitest' {
  export interface ProvidedContext {
    /**
     * Asked for, it answers with the addresses of servers that files share which keep to a namespace of their own. Below,
     * /clusters/lend and /clusters/take-back are for files that need an API server for themselves.
     */
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

/** An API server takes seconds to start, and more to live: one for all workers, if any of them asks for it, and a pool. */
async function shareServers(): Promise<{ url: string; stop: () => Promise<void> }> {
  let cluster: ReturnType<typeof startTestCluster> | undefined
  const pool = new ClusterPool()
  const answers: Record<string, (query: URLSearchParams) => Promise<object>> = {
    '/': async () => {
      cluster ??= startTestCluster({ nats: true })
      const { kubeconfig, nats } = await cluster
      return { kubeconfig, natsUrl: nats?.url ?? '' }
    },
    '/clusters/lend': async () => ({ dir: await pool.lend() }),
    '/clusters/take-back': async (query) => {
      pool.takeBack(query.get('dir') ?? '')
      return {}
    },
  }
  const receiver = await startHttpReceiver(({ url }, response) => {
    const { pathname, searchParams } = new URL(url, 'http://localhost')
    const answer = answers[pathname] ?? (() => Promise.reject(new Error(`nothing is shared at ${pathname}`)))
    // A client that uses a connection again may meet its end: the server closes one that is idle.
    response.setHeader('connection', 'close')
    answer(searchParams).then(
      (shared) => response.end(JSON.stringify(shared)),
      (error: unknown) => response.writeHead(500).end(String(error)),
    )
  })
  const stop = async (): Promise<void> => {
    await receiver[Symbol.asyncDispose]()
    await Promise.all([pool.stop(), cluster?.then((started) => started.stop())])
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
  const task = progress.task('programs of tests')
  for (const program of [cloudEventsProgram, versitygw, fakeGcsServer, promtool, azurite, memcachedOperator])
    await program()
  task.done()
}
