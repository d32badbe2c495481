import type { Kind } from '#sdk'
import { Pod } from '#sdk'
import type { Simulation } from '#testing'

export const STORED = {
  path: 's3://bucket/etcd/prod',
  etcdVersion: '3.7.3',
  etcdRevision: 12,
  size: 20_512,
  sha256: 'a'.repeat(64),
}

/** Kubelet ends the one agent that runs, with this report. */
export function endAgent(world: Simulation<Kind<unknown>>, report: object | string, reason?: string): void {
  const running = world.list(Pod).find(({ status }) => status?.phase !== 'Failed' && status?.phase !== 'Succeeded')
  const failed = typeof report === 'string' || 'error' in report
  const terminated = {
    exitCode: failed ? 1 : 0,
    reason: reason ?? (failed ? 'Error' : 'Completed'),
    message: typeof report === 'string' ? report : JSON.stringify(report),
    finishedAt: world.now.toISOString(),
  }
  const status = {
    phase: failed ? 'Failed' : 'Succeeded',
    containerStatuses: [{ name: 'agent', state: { terminated } }],
  }
  world.patch(Pod, { status }, running?.metadata.name)
}

export const podsOf = (world: Simulation<Kind<unknown>>): string[] =>
  world.list(Pod).map(({ metadata }) => metadata.name)
