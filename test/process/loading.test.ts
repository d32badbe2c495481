import { mkdtemp, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterAll, beforeAll, expect, it } from 'vitest'
import manifest from '../../package.json' with { type: 'json' }
import { loadedBy } from '../support/loaded.ts'

const BIN = join(import.meta.dirname, '../../cli/bin.js')
const NOWHERE = {
  NATS_URL: 'nats://127.0.0.1:9',
  KUBERNETES_SERVICE_HOST: '127.0.0.1',
  KUBERNETES_SERVICE_PORT: '9',
}

const ROOMS = [
  'core/contracts',
  'core/spec',
  'streams/nats',
  'kube',
  'streams/events',
  'streams/queue',
  'reconcile',
  'bridge',
  'dispatch',
  'sdk',
  'sdk/testing',
  'functions',
  'cli/install',
  'kube/pki',
  'packages/lab',
]
/** What others depend on in turn is theirs. */
const COUNTED = new Set([...ROOMS, ...Object.keys(manifest.dependencies)])

let dir: string
beforeAll(async () => {
  dir = await mkdtemp(join(tmpdir(), 'fl-loading-'))
  const cluster = { server: 'https://127.0.0.1:9' }
  const contexts = [{ name: 'x', context: { cluster: 'c' } }]
  const config = { clusters: [{ name: 'c', cluster }], contexts, 'current-context': 'x' }
  await writeFile(join(dir, 'config'), JSON.stringify(config))
})
afterAll(() => rm(dir, { recursive: true }))

/** The functions that come along: EtcdCluster issues certificates, and loads gRPC when it calls etcd. */
const FUNCTIONS = ['core/contracts', 'core/spec', 'functions', 'kube/pki', 'lru-cache', 'sdk', 'zod']
const HTTP = [...FUNCTIONS, 'streams/events', 'pino']
const NATS = [
  '@nats-io/jetstream',
  'core/contracts',
  'streams/events',
  'streams/nats',
  'nats',
  'pino',
  'core/spec',
  'zod',
]

it.each([
  ['--help', []],
  ['serve nope', HTTP],
  ['--kubeconfig config install --builtin all', [...FUNCTIONS, 'cli/install', 'kube', 'yaml']],
  ['queue ls', [...NATS, 'streams/queue']],
  // Without a kubeconfig, as in a pod, and with a log that is not a terminal.
  [
    'up --builtin all',
    [...new Set([...NATS, ...FUNCTIONS]), 'bridge', 'dispatch', 'kube', 'prom-client', 'streams/queue', 'reconcile'],
  ],
])('a command loads what it needs and nothing else: %s', async (line, needed) => {
  const args = line.split(' ').map((word) => (word === 'config' ? join(dir, word) : word))
  const loaded = await loadedBy([BIN, ...args], NOWHERE)
  expect(loaded.filter((one) => COUNTED.has(one))).toEqual(['commander', ...needed].sort())
})
