import type { KubeObject, RunInput } from '#contracts'
import type { EndedRun, Logged, TrailRound } from '#dispatch'
import type { Lease } from '#queue'
import { reconciled } from '#reconcile'
import { reconcilerSpec } from '#spec'

const spec = reconcilerSpec.parse({
  for: { group: 'example.com', version: 'v1', resource: 'websites', kind: 'Website' },
  owns: [{ group: '', version: 'v1', resource: 'configmaps', kind: 'ConfigMap' }],
  related: [{ group: '', version: 'v1', resource: 'secrets', kind: 'Secret' }],
  invoke: { pull: {} },
})

export const website = (version: string, more: object = {}): KubeObject => ({
  apiVersion: 'example.com/v1',
  kind: 'Website',
  metadata: { name: 'hello', namespace: 'shop', uid: 'u1', resourceVersion: version },
  ...more,
})

export const configMap = (name: string, version: string, data: object = {}): KubeObject => ({
  apiVersion: 'v1',
  kind: 'ConfigMap',
  metadata: { name, namespace: 'shop', resourceVersion: version },
  data,
})

export const secret = (value: string): KubeObject => ({
  apiVersion: 'v1',
  kind: 'Secret',
  metadata: {
    name: 'key',
    namespace: 'shop',
    resourceVersion: '5',
    annotations: { 'kubectl.kubernetes.io/last-applied-configuration': value },
  },
  data: { password: Buffer.from(value).toString('base64') },
})

export const input = (given: Partial<RunInput> = {}): RunInput => ({
  object: website('1'),
  owned: { 'ConfigMap.v1': [] },
  related: {},
  attempt: 0,
  now: '2026-01-01T00:00:00.000Z',
  seed: 'the-seed-of-the-run',
  finalizing: false,
  ...given,
})

export const round = (given: Partial<TrailRound> = {}): TrailRound => ({
  input: input(),
  returned: {},
  writes: [],
  ...given,
})

export const logged = (lines: [message: string, fields: string | undefined][], more: Partial<Logged> = {}): Logged => ({
  lines: lines.map(([message, fields], index) => ({
    at: new Date(Date.parse('2026-01-01T00:00:01Z') + 10 * index),
    level: index === 0 ? 'info' : 'warn',
    message,
    fields,
  })),
  omitted: 0,
  inputs: new Set(),
  ...more,
})

export function endedRun(given: Partial<EndedRun> = {}, owner = 'run-1'): EndedRun {
  const lease = {
    reconciler: 'website',
    key: 'shop.hello',
    lane: 'high',
    owner,
    attempt: 0,
    cutShort: false,
    suspect: false,
    fired: false,
    causes: [] as readonly string[],
    enqueuedAt: new Date('2026-01-01T00:00:00Z'),
  } as Lease
  return {
    lease,
    of: reconciled('website', spec, ({ resource }) => resource === 'secrets'),
    startedAt: new Date('2026-01-01T00:00:01Z'),
    ms: 250,
    finish: { kind: 'done' },
    span: undefined,
    revision: undefined,
    rounds: [round()],
    logged: undefined,
    ...given,
  }
}
