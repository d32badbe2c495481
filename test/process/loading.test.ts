import { mkdtemp, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterAll, beforeAll, expect, it } from 'vitest'
import etcd from '../../functions/etcd/package.json' with { type: 'json' }
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
  'functions/at',
  'functions/etcd',
  'functions/memcached',
  'functions/visitors',
  'cli/install',
  'kube/pki',
  'packages/lab',
]
/** What others depend on in turn is theirs. */
const COUNTED = new Set([...ROOMS, ...Object.keys({ ...manifest.dependencies, ...etcd.dependencies })])

let dir: string
beforeAll(async () => {
  dir = await mkdtemp(join(tmpdir(), 'fl-loading-'))
  const cluster = { server: 'https://127.0.0.1:9' }
  const contexts = [{ name: 'x', context: { cluster: 'c' } }]
  const config = { clusters: [{ name: 'c', cluster }], contexts, 'current-context': 'x' }
  await writeFile(join(dir, 'config'), JSON.stringify(config))
})
afterAll(() => rm(dir, { recursive: true }))

const SDK = ['core/contracts', 'core/spec', 'functions', 'sdk', 'zod']
/** EtcdCluster issues certificates, and loads gRPC when it calls etcd. */
const ETCD = ['functions/etcd', 'kube/pki', 'lru-cache']
const ALL = [...SDK, ...ETCD, 'functions/at', 'functions/memcached', 'functions/visitors']
const HTTP = [...ALL, 'streams/events', 'pino']
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
/** Without a kubeconfig, as in a pod, and with a log that is not a terminal. */
const UP = [...NATS, 'bridge', 'dispatch', 'kube', 'prom-client', 'streams/queue', 'reconcile']

it.each([
  ['--help', []],
  ['serve nope', HTTP],
  ['--kubeconfig config install --builtin all', [...ALL, 'cli/install', 'kube', 'yaml']],
  ['queue ls', [...NATS, 'streams/queue']],
  // A dispatcher loads only the functions that it was given.
  ['up --builtin all', [...UP, ...ALL]],
  ['up --builtin at', [...UP, ...SDK, 'functions/at']],
  ['dispatch --builtin at,memcached', [...UP, ...SDK, 'functions/at', 'functions/memcached']],
  ['dispatch --builtin etcd', [...UP, ...SDK, ...ETCD]],
  ['agent', [...UP, ...SDK, 'cli/install']],
])('a command loads what it needs and nothing else: %s', async (line, needed) => {
  const args = line.split(' ').map((word) => (word === 'config' ? join(dir, word) : word))
  const loaded = await loadedBy([BIN, ...args], NOWHERE)
  expect(loaded.filter((one) => COUNTED.has(one))).toEqual([...new Set(['commander', ...needed])].sort())
})
