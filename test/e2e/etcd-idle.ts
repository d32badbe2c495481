import { setTimeout as sleep } from 'node:timers/promises'
import { kubectlFor } from '../support/kubectl.ts'
import type { EtcdClusters } from './etcd-clusters.ts'

/** What happened in a time in which nothing should. */
interface Traffic {
  /** Writes of Fairlead. */
  writes: string[]
  /** Requests for EtcdClusters and EtcdRestores without watches. */
  requests: number
  /** Calls of members of etcd. */
  calls: number
}

/** Counted by the API server and by etcd. */
export async function trafficWithin(ms: number, etcds: EtcdClusters, name: string): Promise<Traffic> {
  const { cluster } = etcds.world
  const kubectl = await kubectlFor(cluster)
  const count = async () => {
    const members = await Promise.all((await etcds.urls(name)).map(metricsOf))
    return {
      requests: sum(await kubectl(['get', '--raw', '/metrics']), isRequest),
      calls: members.reduce((all, text) => all + sum(text, isCall), 0),
      writes: (await cluster.audit()).filter(({ userAgent }) => userAgent.startsWith('fairlead/')),
    }
  }
  const before = await count()
  await sleep(ms)
  const after = await count()
  return {
    writes: after.writes.slice(before.writes.length).map(({ verb, resource, name }) => `${verb} ${resource} ${name}`),
    requests: after.requests - before.requests,
    calls: after.calls - before.calls,
  }
}

const metricsOf = async (url: string): Promise<string> =>
  (await fetch(`${url.replace(/:\d+$/, '')}:2381/metrics`)).text()

const isRequest = (line: string): boolean =>
  /^apiserver_request_total\{.*resource="etcd(clusters|restores)"/.test(line) && !line.includes('verb="WATCH"')
const isCall = (line: string): boolean => line.startsWith('grpc_server_started_total')

const sum = (text: string, counts: (line: string) => boolean): number =>
  text
    .split('\n')
    .filter(counts)
    .reduce((all, line) => all + Number(line.slice(line.lastIndexOf(' ') + 1)), 0)
